"""Makes text from outside (files, names, output of programs) safe to print: no control characters, valid UTF-8."""

from __future__ import annotations

import re

# Sequences that a terminal would obey, whole, so that nothing of them is left to read …
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,16}[@-~]|\x1b[\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)|\x1b[ -/]{0,4}[0-~]"
)
# … then every other control character but tab and new line, and those that turn the direction of writing.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_HALF = re.compile(r"[\ud800-\udfff]")


def printable(text: str) -> str:
    if text.isprintable():
        return text
    return whole(_CONTROL.sub("", _SEQUENCE.sub("", text)))


def whole(text: str) -> str:
    """In UTF-8: the bytes of a file's name that are none are written as `\\xe9`."""
    return _HALF.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"
