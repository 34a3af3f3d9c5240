"""Questions to the machine, one file per subject. Each takes a `World` and fills the part of a layer that it knows.

A probe may fail in any way: `gather` gives its fields a `Missing` with the reason and goes on with the others.
"""
