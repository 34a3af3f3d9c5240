"""Version numbers, compared number by number."""

from __future__ import annotations

import re

Version = tuple[int, ...]


def parse(text: str) -> Version:
    """The leading numbers: "2.7.1+cu118" is (2, 7, 1), "580.65.06" is (580, 65, 6), "cu128" is ()."""
    match = re.match(r"\d+(\.\d+)*", text.strip())
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def at_least(version: str, minimum: str) -> bool:
    """Missing trailing numbers count as zero."""
    one, other = parse(version), parse(minimum)
    length = max(len(one), len(other))
    return one + (0,) * (length - len(one)) >= other + (0,) * (length - len(other))


def minor(text: str) -> str:
    """ "2.7.1+cu118" -> "2.7"."""
    return ".".join(str(part) for part in parse(text)[:2])
