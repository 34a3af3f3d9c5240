"""Hooks on torch's own parts, one file per part; each feeds the step clock and changes nothing."""
