"""Changes to a text, each at its own place; then the whole is read again, and refused if anything else became different."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from flatout.base.errors import FlatoutError
from flatout.base.records import Missing, Struct
from flatout.machine.config_tree import ALIAS, SCALAR, Entry, Path, Tree
from flatout.tune.config.config_file import Configuration, unshared

LINE_END = re.compile(r"\r\n|\r|\n")


class Edit(Struct, frozen=True, kw_only=True):
    """`text` in place of what stands from `start` to `end`; `path` is the value that comes of it, new or not."""

    start: int
    end: int
    text: str
    path: Path
    inserted: bool = False


def replaced(configuration: Configuration, entry: Entry, written: str) -> Edit | None:
    """None where the value cannot be changed alone: a list, a block of text, or one that an alias repeats."""
    if entry.shared or entry.kind not in (SCALAR, ALIAS) or entry.quote in ("|", ">") or entry.tag:
        return None
    if entry.start == entry.end:  # `key:` and nothing more: its place is right behind the colon
        place = _behind_colon(configuration.text, entry)
        return None if place < 0 else Edit(start=place, end=place, text=f" {written}", path=entry.path)
    return Edit(start=entry.start, end=entry.end, text=written, path=entry.path)


def inserted(configuration: Configuration, beside: Entry, name: str, written: str) -> Edit | None:
    """A new key right below (or behind) one that stands in the same mapping; None where that is no single line."""
    text = configuration.text
    last = beside.end if beside.start < beside.end else _behind_colon(text, beside)
    if beside.key_start < 0 or last < 0 or beside.shared or beside.quote in ("|", ">"):
        return None
    if LINE_END.search(text, beside.key_start, last):
        return None
    path = (*beside.path[:-1], name)
    begin = _line_start(text, beside.key_start)
    alone = not text[begin : beside.key_start].strip(" \t")  # the key is the first on its line
    if beside.flow:
        key = f'"{name}"' if configuration.json or text[beside.key_start] == '"' else name
        behind = f",{_line_end_before(text, begin)}{text[begin : beside.key_start]}" if alone and begin else ", "
        return Edit(start=last, end=last, text=f"{behind}{key}: {written}", path=path, inserted=True)
    indent = text[begin : beside.key_start]
    if not alone:
        if indent.strip(" -"):
            return None
        indent = " " * len(indent)  # the first key of a list's item: `- num_workers: 4`
    match = LINE_END.search(text, last)
    end = _line_end_before(text, begin) or (LINE_END.search(text) or [""])[0] or "\n"
    if match is None:
        return Edit(start=len(text), end=len(text), text=f"{end}{indent}{name}: {written}", path=path, inserted=True)
    line = f"{indent}{name}: {written}{match[0]}"
    return Edit(start=match.end(), end=match.end(), text=line, path=path, inserted=True)


def _behind_colon(text: str, entry: Entry) -> int:
    """Where the value of `key:` alone would stand; -1 where not even a colon is there (`{key, other: 1}`)."""
    colon = text.find(":", entry.key_end)
    return -1 if colon < 0 or text[entry.key_end : colon].strip() else colon + 1


def _line_start(text: str, at: int) -> int:
    return max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1


def _line_end_before(text: str, begin: int) -> str:
    if begin == 0:
        return ""
    return "\r\n" if text[max(0, begin - 2) : begin] == "\r\n" else text[begin - 1]


def spliced(text: str, edits: Iterable[Edit]) -> str:
    """Insertions at one place stay in their order."""
    for _, edit in sorted(enumerate(edits), key=lambda pair: (pair[1].start, pair[0]), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def checked(configuration: Configuration, edits: Sequence[Edit]) -> tuple[str, Tree]:
    """The new text, read again. A difference that nobody asked for is our fault: nothing is written then."""
    text = spliced(configuration.text, edits)
    tree = configuration.reread(text)
    if isinstance(tree, Missing):
        raise FlatoutError("config-error.splice", path=str(configuration.path), detail=tree.detail)
    asked = {edit.path for edit in edits}
    new = {edit.path for edit in edits if edit.inserted}
    stray = _differing(configuration.tree, tree, asked, new)
    if stray is not None:
        raise FlatoutError("config-error.splice", path=str(configuration.path), detail=".".join(stray))
    return text, tree


def _differing(before: Tree, after: Tree, asked: set[Path], new: set[Path]) -> Path | None:
    """The first value that is not as it was. Words, quotes, tags, anchors and order first, so that it holds for every
    reader, whatever it takes `no` or `1e-4` for; then the values themselves, with anchors and merges resolved."""
    old = [entry for entry in before.entries if entry.path not in asked]
    now = [entry for entry in after.entries if entry.path not in asked]
    for one, other in zip(old, now, strict=False):
        if one.signature != other.signature:
            return other.path
    if len(old) != len(now):
        return (old or now)[-1].path
    missing = [path for path in asked if after.at(path) is None]
    if missing:
        return missing[0]
    expected, found = unshared(before.value), unshared(after.value)
    for path in asked:
        _take(expected, path, gone_is_fine=path in new)
        _take(found, path, gone_is_fine=False)
    return None if same(expected, found) else ("?",)


def _take(value: Any, path: Path, gone_is_fine: bool) -> None:
    for part in path[:-1]:
        value = value[int(part)] if isinstance(value, list) else value[_key(value, part)]
    if isinstance(value, list):
        value[int(path[-1])] = None
    elif not gone_is_fine or path[-1] in value:
        value.pop(_key(value, path[-1]), None)


def _key(mapping: dict[Any, Any], part: str) -> Any:
    """Keys of a YAML file may be numbers; their path is text."""
    return part if part in mapping else next((key for key in mapping if str(key) == part), part)


def same(one: Any, other: Any) -> bool:
    """Equal in value and type: 1 is neither True nor 1.0; a NaN is a NaN; the order of keys counts."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return bool(one == other)
