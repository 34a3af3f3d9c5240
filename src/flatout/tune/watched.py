"""Trials where no overlay can be had: the agent refuses to destroy what exists; after each child the files are looked at."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from _flatout_agent.wire import REFUSED
from flatout.base.errors import FlatoutError
from flatout.launch import folder

UNWATCHED = (folder.HOME, "__pycache__", ".git")
MOST_FILES = 50_000  # beyond, looking would take longer than trying

State = tuple[int, int, int]  # of a file: size, time of the last change, inode


class Watched:
    """`place` is shared by all children. Made before the first of them."""

    def __init__(self, place: Path, folders: Iterable[Path]) -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        self._folders = list(folders)
        self._before = dict(_files(self._folders))

    def check(self) -> None:
        """A library may write past the agent: then nothing more is tried, and what it touched is named."""
        for path, state in self._before.items():
            if _state(path) != state:
                raise FlatoutError("tune-watched.changed", path=path)

    def refused(self) -> str | None:
        """What a trial was kept from changing, the last one."""
        try:
            told = (self.place / REFUSED).read_bytes().split(b"\0")
        except OSError:
            return None
        return os.fsdecode(told[-2]) if len(told) > 1 else None


def can_be_watched(line: Sequence[str]) -> bool:
    """Only Python is: not a shell script, nor a launcher that is none, nor an interpreter that is told to be deaf."""
    return os.path.basename(line[0]).startswith("python") and not any(word in ("-I", "-E") for word in line[1:3])


def _files(folders: Iterable[Path]) -> Iterable[tuple[str, State | None]]:
    count = 0
    for top in folders:
        for inside, names, files in os.walk(top):
            names[:] = [name for name in names if name not in UNWATCHED]
            for name in files:
                count += 1
                if count > MOST_FILES:
                    return
                path = os.path.join(inside, name)
                yield path, _state(path)


def _state(path: str) -> State | None:
    try:
        told = os.lstat(path)
    except OSError:
        return None
    return told.st_size, told.st_mtime_ns, told.st_ino
