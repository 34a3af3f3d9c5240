"""A configuration as it stands in its text: every value with its place, so that one can be changed and nothing else touched."""

from __future__ import annotations

from typing import Any

from flatout.base.records import Struct
from flatout.base.whole_number import whole_number

Path = tuple[str, ...]

SCALAR, ALIAS, MAPPING, SEQUENCE = "scalar", "alias", "mapping", "sequence"


class Entry(Struct, kw_only=True):
    """The value of a key, or an item of a list. Offsets count characters of the text."""

    path: Path
    key_start: int = -1  # -1 for items of a list
    key_end: int = -1
    start: int  # of the value's own text: after its anchor and tag
    end: int
    kind: str
    text: str = ""  # what a scalar says, without its quotes; an alias's name
    quote: str = ""  # as written: nothing, ', ", | or >
    tag: str = ""
    anchor: str = ""
    flow: bool = False  # inside { } or [ ]
    shared: bool = False  # an alias repeats it, or what holds it: changed here it would change there
    line: int = 0  # from 1

    @property
    def signature(self) -> tuple[object, ...]:
        """All that a reader could see of it, whatever its dialect makes of the words."""
        return self.path, self.kind, self.text, self.quote, self.tag, self.anchor


class Tree(Struct, kw_only=True):
    """A document that was understood: its values as a safe reader gives them, and their places."""

    value: Any
    entries: list[Entry]

    def at(self, path: Path) -> Entry | None:
        return next((entry for entry in self.entries if entry.path == path), None)

    def inside(self, path: Path) -> list[Entry]:
        """The entries of one mapping or list, in their order."""
        return [entry for entry in self.entries if entry.path[:-1] == path]

    def has(self, path: Path) -> bool:
        """Whether the values have it under these very names: a key may be a number, or nothing at all."""
        value = self.value
        for part in path:
            if isinstance(value, dict) and part in value:
                value = value[part]
            elif isinstance(value, list) and (number := whole_number(part)) is not None and number < len(value):
                value = value[number]
            else:
                return False
        return True
