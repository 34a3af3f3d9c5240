"""JSON with the places of its values: Python's own reader keeps none."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter
from typing import Any

from flatout.base.records import Missing
from flatout.machine.config_tree import MAPPING, SCALAR, SEQUENCE, Entry, Path, Tree

SPACE = re.compile(r"[ \t\r\n]*")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
BARE = re.compile(r"[^\s,\]}]+")


class DuplicateKeyError(ValueError):
    pass


def read(text: str) -> Tree | Missing:
    """The values and their places; or why there are none."""
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates)
        scan = _Scan(text)
        scan.value((), scan.space(0), -1, -1)
    except DuplicateKeyError as error:
        return Missing("duplicate-key", str(error))
    except json.JSONDecodeError as error:
        return Missing("syntax-error", f"{error.msg} ({error.lineno}:{error.colno})")
    except RecursionError:
        return Missing("syntax-error", "too deep")
    except ValueError as error:  # a number of thousands of digits
        return Missing("syntax-error", str(error))
    return Tree(value=value, entries=scan.entries)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DuplicateKeyError(Counter(name for name, _ in pairs).most_common(1)[0][0])
    return found


class _Scan:
    """Walks a text that the real reader has already accepted, so nothing is checked twice."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.ends = [match.start() for match in re.finditer("\n", text)]
        self.entries: list[Entry] = []

    def space(self, at: int) -> int:
        match = SPACE.match(self.text, at)
        return match.end() if match else at

    def value(self, path: Path, at: int, key_start: int, key_end: int) -> int:
        """The end of the value that begins at `at`."""
        entry = Entry(
            path=path, key_start=key_start, key_end=key_end, start=at, end=at, kind=SCALAR, flow=True, line=self.line(at)
        )
        if path:
            self.entries.append(entry)
        first = self.text[at]
        if first == "{":
            entry.kind, entry.end = MAPPING, self.mapping(path, at)
        elif first == "[":
            entry.kind, entry.end = SEQUENCE, self.sequence(path, at)
        else:
            match = (STRING if first == '"' else BARE).match(self.text, at)
            assert match is not None
            entry.quote, entry.end = ('"' if first == '"' else ""), match.end()
            entry.text = json.loads(match[0]) if first == '"' else match[0]
        return entry.end

    def mapping(self, path: Path, at: int) -> int:
        at = self.space(at + 1)
        while self.text[at] != "}":
            match = STRING.match(self.text, at)
            assert match is not None
            colon = self.space(match.end())
            end = self.value((*path, json.loads(match[0])), self.space(colon + 1), match.start(), match.end())
            at = self.after(end)
        return at + 1

    def sequence(self, path: Path, at: int) -> int:
        at, number = self.space(at + 1), 0
        while self.text[at] != "]":
            at = self.after(self.value((*path, str(number)), at, -1, -1))
            number += 1
        return at + 1

    def after(self, at: int) -> int:
        at = self.space(at)
        return self.space(at + 1) if self.text[at] == "," else at

    def line(self, at: int) -> int:
        return bisect_left(self.ends, at) + 1
