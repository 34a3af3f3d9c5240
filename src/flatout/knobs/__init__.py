"""The knobs (settings): allowed values, numerics class, and whether a knob can change in a running script."""
