"""Limits for YAML files: depth, size after merging, digits of numbers.

Looked at event by event, so that a file which was made to take for ever is left at its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from flatout.base.records import Struct

DEEPEST = 100  # levels
MOST_EVENTS = 12_000  # keys, values and brackets: a training has some hundreds
MOST_MERGED = 10_000  # keys that `<<` brings into one mapping
MOST_DIGITS = 400
LONG_NUMBER = re.compile(rf"[-+]?[0-9][0-9a-fA-FxXoObB_:]{{{MOST_DIGITS},}}")
BRACKETS = re.compile(r"[][{}]")
MERGE = "<<"


class _Level(Struct, kw_only=True):
    anchor: str = ""
    mapping: bool = False
    merges: bool = False  # what stands in it is brought into the mapping around it
    size: int = 0
    key: str | None = None  # read, its value not yet


def brackets_too_deep(text: str) -> bool:
    """Before anything is parsed: what stands in brackets on one line is looked through again for each of them."""
    depth = 0
    for bracket in BRACKETS.findall(text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        if depth > 2 * DEEPEST:  # some of them may stand in texts
            return True
    return False


def broken_by(events: Iterable[Any]) -> str | None:
    """The limit that does not hold, in words for the detail of a sentence. `events`: of YAML's parser."""
    levels = [_Level()]
    sizes: dict[str, int] = {}
    for count, event in enumerate(events):
        if count > MOST_EVENTS:
            return f"more than {MOST_EVENTS} values"
        kind = type(event).__name__
        if kind in ("MappingStartEvent", "SequenceStartEvent"):
            mapping = kind == "MappingStartEvent"
            levels.append(_Level(anchor=str(event.anchor or ""), mapping=mapping, merges=_merging(levels[-1])))
            if len(levels) > DEEPEST + 1:
                return f"more than {DEEPEST} levels"
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            ended = levels.pop()
            sizes[ended.anchor] = ended.size
            if ended.size > MOST_MERGED and ended.mapping:
                return f"more than {MOST_MERGED} merged keys"
            _count(levels[-1], ended.size if ended.merges else 1, "")
        elif kind == "AliasEvent":
            _count(levels[-1], sizes.get(str(event.anchor), 1) if _merging(levels[-1]) else 1, "")
        elif kind == "ScalarEvent":
            if not event.style and LONG_NUMBER.fullmatch(event.value):
                return f"a number of more than {MOST_DIGITS} digits"
            _count(levels[-1], 1, event.value)
    return None


def _merging(level: _Level) -> bool:
    return level.key == MERGE if level.mapping else level.merges


def _count(level: _Level, size: int, key: str) -> None:
    if level.mapping and level.key is None:
        level.key = key
        return
    level.size += size
    level.key = None
