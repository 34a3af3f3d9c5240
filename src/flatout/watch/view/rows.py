"""Rows of a terminal, made of pieces that know their style, what they say when pointed at, and what a click does. Pure.

Widths are cells, not characters: a Chinese character takes two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flatout.base.printable import printable
from flatout.report.terminal import cell_len


class Piece(NamedTuple):
    text: str
    style: str = ""
    tip: str = ""
    action: str = ""


Row = list[Piece]
Rows = list[Row]


def piece(text: str, style: str = "", tip: str = "", action: str = "") -> Piece:
    """What comes from outside (the name of a process, a run) must not move the cursor."""
    return Piece(printable(text), style, tip, action)


def width_of(row: Row) -> int:
    return sum(cell_len(one.text) for one in row)


def cut(text: str, width: int) -> str:
    """To so many cells; what does not fit ends in …"""
    if cell_len(text) <= width:
        return text
    kept, used = "", 0
    for character in text:
        used += cell_len(character)
        if used > width - 1:
            break
        kept += character
    return f"{kept}…" if width > 0 else ""


def fit(row: Row, width: int, fill: str = "") -> Row:
    """Exactly so many cells."""
    kept: Row = []
    left = width
    for one in row:
        size = cell_len(one.text)
        if size <= left:
            kept.append(one)
            left -= size
            continue
        shown = cut(one.text, left)
        kept.append(one._replace(text=shown))
        left -= cell_len(shown)
        break
    if left > 0:
        kept.append(Piece(" " * left, fill))
    return kept


def spread(left: Row, right: Row, width: int) -> Row:
    """One at each end; where both do not fit, the right one goes."""
    room = width - width_of(left) - width_of(right)
    return [*left, Piece(" " * room), *right] if room >= 1 else fit(left, width)


def wrapped(text: str, width: int, style: str = "") -> Rows:
    """At blanks; a language without any is cut where the line ends."""
    lines: list[str] = [""]
    for word in printable(text).split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= width:
            lines[-1] = joined
            continue
        if lines[-1] and cell_len(word) <= width:
            lines.append(word)
            continue
        rest = joined if cell_len(lines[-1]) + 2 < width else word
        lines[-1:] = [] if rest is joined else [lines[-1]]
        while cell_len(rest) > width:
            head = _head(rest, width)
            lines.append(head)
            rest = rest[len(head) :]
        lines.append(rest)
    return [[Piece(line, style)] for line in lines if line] or [[]]


def _head(text: str, width: int) -> str:
    used = 0
    for place, character in enumerate(text):
        used += cell_len(character)
        if used > width:
            return text[: max(1, place)]
    return text


def joined(parts: Sequence[Row], between: str, style: str = "dim") -> Row:
    found: Row = []
    for part in parts:
        if found:
            found.append(Piece(between, style))
        found += part
    return found


def box(
    rows: Rows, width: int, title: Row, *, right: Row | None = None, foot: tuple[str, str] = ("", ""), frame: str = "frame"
) -> Rows:
    """A frame around rows, with its title in the upper edge; `foot`: what stands at both ends of the lower one."""
    inner = width - 2
    if inner < 4:
        return [fit(row, width) for row in rows]
    return [
        _edge("╭", "╮", title, right or [], inner, frame),
        *([Piece("│", frame), *fit(row, inner), Piece("│", frame)] for row in rows),
        _edge("╰", "╯", _dim(foot[0]), _dim(foot[1]), inner, frame),
    ]


def _dim(text: str) -> Row:
    return [Piece(text, "dim")] if text else []


def _edge(first: str, last: str, left: Row, right: Row, inner: int, frame: str) -> Row:
    room = inner - 2
    left = fit(left, room - 2) if width_of(left) > room - 2 else left
    begin = [Piece("─ ", frame), *left, Piece(" ", frame)] if left else []
    end = [Piece(" ", frame), *right, Piece(" ─", frame)] if right else []
    if width_of(begin) + width_of(end) > inner:
        end = []
    line = "─" * max(0, inner - width_of(begin) - width_of(end))
    return [Piece(first, frame), *fit([*begin, Piece(line, frame), *end], inner), Piece(last, frame)]


def beside(columns: Sequence[tuple[Rows, int]], gap: int = 0) -> Rows:
    """Blocks next to each other, each with its width; shorter ones are filled up."""
    height = max((len(rows) for rows, _ in columns), default=0)
    found: Rows = []
    for place in range(height):
        row: Row = []
        for rows, width in columns:
            if row and gap:
                row.append(Piece(" " * gap))
            row += fit(rows[place] if place < len(rows) else [], width)
        found.append(row)
    return found


def at(row: Row, x: int) -> Piece | None:
    """What stands in this cell."""
    passed = 0
    for one in row:
        passed += cell_len(one.text)
        if x < passed:
            return one
    return None
