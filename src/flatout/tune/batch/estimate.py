"""A batch size from two numbers alone: an estimate, with its assumptions written down. `flatout tune` measures."""

from __future__ import annotations

from flatout.base.records import Struct

# Of the memory that may be used. Windows does not fail when a card is full: it spills into the host's memory, far slower.
HEADROOM = 0.08
HEADROOM_WINDOWS = 0.15

# What CUDA and its libraries take before the first tensor.
CONTEXT_BYTES = 512 << 20

# Weights, their gradients, and the two moments of Adam, all in float32.
COPIES = 4

# What one sample leaves behind in the forward pass, in sizes of the weights: about 1 for ResNet-50 at 224 pixels and for ViT-B,
# less for small inputs, many for long texts. A model of a few kilobytes still moves its inputs.
ACTIVATIONS = 1.0
LEAST_PER_SAMPLE = 4 << 20

MOST = 1024  # beyond it the learning rate is the question, not the memory


class BatchEstimate(Struct, frozen=True, kw_only=True):
    size: int  # 0 where not even one sample would fit
    usable_bytes: int
    fixed_bytes: int
    per_sample_bytes: int


def headroom(system: object) -> float:
    return HEADROOM_WINDOWS if system == "Windows" else HEADROOM


def estimate(model_bytes: int, memory_bytes: int, spare: float = HEADROOM, per_sample: int | None = None) -> BatchEstimate:
    """The largest power of two that fits by the assumptions above; `per_sample` replaces the guess about activations."""
    usable = int(memory_bytes * (1 - spare))
    fixed = CONTEXT_BYTES + COPIES * model_bytes
    each = per_sample or max(LEAST_PER_SAMPLE, int(ACTIVATIONS * model_bytes))
    fits = max(0, usable - fixed) // each
    size = min(MOST, 1 << (fits.bit_length() - 1)) if fits else 0
    return BatchEstimate(size=size, usable_bytes=usable, fixed_bytes=fixed, per_sample_bytes=each)
