"""The measured search: what to try next, and what the figures say. Its core is pure: no clock, no files, no torch."""
