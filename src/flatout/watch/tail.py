"""Reads a growing journal: each poll reads only what is new."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from _flatout_agent import wire
from flatout.launch.journal_shape import well_formed

AT_ONCE = 4 << 20  # bytes a poll: a month's journal is read in a few of them, and memory stays flat
LONGEST_LINE = 1 << 20

Line = dict[str, Any]


class Tail:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0
        self._rest = b""
        self._identity: tuple[int, int] | None = None
        self.begun_again = False  # since the last poll: the file is another one, or was cut short

    def poll(self) -> list[Line] | None:
        """The lines that are new and whole; None where there is no file."""
        self.begun_again = False
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if (status.st_dev, status.st_ino) != self._identity or status.st_size < self._place:
                    self.begun_again = self._identity is not None
                    self._identity, self._place, self._rest = (status.st_dev, status.st_ino), 0, b""
                file.seek(self._place)
                read = file.read(AT_ONCE)
        except OSError:
            if self._identity is not None:
                self._identity = (0, 0)  # a file that comes later is another one, even where it gets the same number
            return None
        self._place += len(read)
        whole, end, rest = (self._rest + read).rpartition(b"\n")
        self._rest = rest if len(rest) < LONGEST_LINE else b""
        return well_formed(wire.parse_journal(whole.decode("ascii", "replace"))) if end else []
