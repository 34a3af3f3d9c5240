"""CUDA graphs without a compiler: what may be recorded, recording it, and seeing that a recording still holds."""
