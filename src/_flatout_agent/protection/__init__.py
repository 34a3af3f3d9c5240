"""Trials without an overlay: what Python writes lands in a folder of the trial's; the rest is refused."""
