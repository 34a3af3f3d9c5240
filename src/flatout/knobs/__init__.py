"""The vocabulary of what can be turned: each knob's domain, numerics class, and whether it switches hot."""
