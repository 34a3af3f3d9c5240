"""Reads the journals of a finished run line by line, because long ones do not fit into memory."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from _flatout_agent import wire
from flatout.launch.journal_shape import well_formed

WINDOW = '{"kind":"window"'

# A window holds the totals so far, so that only the last one counts; the one before it, where a crash cut that one short.
WINDOWS = 2

# Of all other kinds: a process tells of itself first, and of its end last.
FIRST, LAST = 1000, 100


def read(folder: Path) -> list[list[dict[str, Any]]]:
    return [read_one(path) for path in sorted(folder.glob(wire.journal_name("*")))]


def read_whole(folder: Path) -> list[list[dict[str, Any]]]:
    """With every window: of a run that takes minutes at most."""
    paths = sorted(folder.glob(wire.journal_name("*")))
    return [wire.parse_journal(path.read_text(encoding="ascii", errors="replace")) for path in paths]


def read_one(path: Path) -> list[dict[str, Any]]:
    first: list[str] = []
    windows: deque[str] = deque(maxlen=WINDOWS)
    last: deque[str] = deque(maxlen=LAST)
    with path.open(encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(WINDOW):
                windows.append(line)
            elif len(first) < FIRST:
                first.append(line)
            else:
                last.append(line)
    # Cut short, a line has no end of its own: each gets one.
    return well_formed(wire.parse_journal("\n".join([*first, *windows, *last])))
