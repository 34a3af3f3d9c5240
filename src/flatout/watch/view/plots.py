"""Bars of eighths and areas of braille dots: pure."""

from __future__ import annotations

from collections.abc import Sequence

from flatout.watch.view.rows import Piece, Row, Rows

DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))  # of the left and the right column, from below
LEVELS = 4  # shades of an area, from below
FULL, EMPTY = "━", "─"
EIGHTHS = " ▁▂▃▄▅▆▇█"


def area(
    values: Sequence[float | None], height: int, axis: tuple[float, float], palette: str, marked: Sequence[bool] = ()
) -> Rows:
    """Two values a cell. None: nothing was given there, and nothing is drawn. `marked` ones are drawn in another colour."""
    heights = [_dots(value, 4 * height, *axis) for value in values]
    return _drawn([(0, top) for top in heights], height, palette, marked)


def line(values: Sequence[float | None], height: int, axis: tuple[float, float], palette: str) -> Rows:
    """Where the axis does not begin at 0, an area would lie about the share."""
    heights = [_dots(value, 4 * height, *axis) for value in values]
    spans, before = [], 0
    for top in heights:
        # From one to the next without a gap.
        spans.append(
            (min(top - 1, before) if before and top else max(0, top - 1), max(top, before - 1) if before and top else top)
        )
        before = top
    return _drawn(spans, height, palette, ())


def _drawn(spans: Sequence[tuple[int, int]], height: int, palette: str, marked: Sequence[bool]) -> Rows:
    """From which dot to which, of each column."""
    rows: Rows = []
    pairs = [(*spans[first], *(spans[first + 1] if first + 1 < len(spans) else (0, 0))) for first in range(0, len(spans), 2)]
    slow = [any(marked[first : first + 2]) for first in range(0, len(spans), 2)]
    for number in range(height):
        below = 4 * (height - 1 - number)
        shade = min(LEVELS - 1, LEVELS * (height - 1 - number) // max(1, height))
        cells = [
            CELLS[_in(low - below)][_in(top - below)][_in(other_low - below)][_in(other_top - below)]
            for low, top, other_low, other_top in pairs
        ]
        row: Row = []
        first = 0
        for place in range(1, len(cells) + 1):
            if place == len(cells) or slow[place] != slow[first]:
                row.append(Piece("".join(cells[first:place]), "slow" if slow[first] else f"{palette}.{shade}"))
                first = place
        rows.append(row)
    return rows


def _in(dots: int) -> int:
    return 0 if dots < 0 else 4 if dots > 4 else dots


def _cell(low: int, top: int, other_low: int, other_top: int) -> str:
    bits = sum(DOTS[0][place] for place in range(low, top)) + sum(DOTS[1][place] for place in range(other_low, other_top))
    return chr(0x2800 + bits) if bits else " "


# By where the left and the right column begin and end, in dots: each second thousands of them are drawn.
CELLS = [[[[_cell(a, b, c, d) for d in range(5)] for c in range(5)] for b in range(5)] for a in range(5)]


def _dots(value: float | None, most: int, low: float, high: float) -> int:
    if value is None:
        return 0
    share = (value - low) / (high - low) if high > low else 0.0
    return min(most, max(1, round(share * most)))  # there is a value: a dot at the least


def _add(row: Row, character: str, style: str) -> None:
    if row and row[-1].style == style:
        row[-1] = row[-1]._replace(text=row[-1].text + character)
    else:
        row.append(Piece(character, style))


def spark(values: Sequence[float | None], low: float, high: float, palette: str) -> Row:
    """One value a cell, one row high."""
    row: Row = []
    for value in values:
        if value is None:
            _add(row, " ", palette)
            continue
        share = (value - low) / (high - low) if high > low else 0.0
        _add(row, EIGHTHS[min(8, max(1, round(share * 8)))], palette)
    return row


def bar(parts: Sequence[tuple[float, str, str]], width: int) -> Row:
    """`parts`: share, style and the character to fill with, one after the other; the rest is empty."""
    row: Row = []
    used, passed = 0, 0.0
    for share, style, character in parts:
        passed = min(1.0, passed + max(0.0, share))
        cells = round(passed * width) - used
        if not cells and share > 0 and used < width:
            cells = 1  # it is there
        if cells > 0:
            row.append(Piece(character * cells, style))
            used += cells
    if used < width:
        row.append(Piece(EMPTY * (width - used), "empty"))
    return row


def top_of(values: Sequence[float | None], least: float) -> float:
    """Of an axis that begins at 0: a little above the largest, and round."""
    most = max((value for value in values if value is not None), default=0.0)
    if most <= least:
        return least
    unit = 10.0 ** len(str(int(most))) / 10 if most >= 1 else 1.0
    while unit > most:
        unit /= 10
    return next(unit * step for step in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12) if unit * step >= most)


def range_of(values: Sequence[float | None]) -> tuple[float, float]:
    """Of an axis that need not begin at 0: a loss."""
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    room = 0.05 * (high - low) or max(0.05 * abs(high), 1e-9)
    return (max(0.0, low - room) if low >= 0 else low - room), high + room
