"""Whole numbers as people type them."""

from __future__ import annotations

MOST_DIGITS = 15  # beyond, it is no count of anything, and Python refuses to read thousands of digits


def whole_number(text: str | None) -> int | None:
    """None where it is something else; "²" is a digit for Python, and no number."""
    return int(text) if text is not None and text.isdecimal() and len(text) <= MOST_DIGITS else None
