"""The guard: where neither overlays nor Landlock can be had, the agent refuses to destroy what exists (`veto.py`).

It sees what Python itself calls. After each child the files are looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from _flatout_agent.wire import REFUSED
from flatout.launch import folder
from flatout.launch.scratch import Scratch

UNWATCHED = (folder.HOME, "__pycache__", ".git")
MOST_FILES = 50_000  # beyond, looking would take longer than trying

State = tuple[int, int, int]  # of a file: size, time of the last change, inode


class Guard:
    """A `Protection`. Its folder is shared by all children of a search."""

    kind = "guard"
    ready = True

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = list(folders)
        self._before: dict[str, State | None] = {}
        self._scratch: Scratch | None = None
        self.gaps: tuple[str, ...] = ()
        self.above: list[Path] = []
        self.environ: dict[str, str] = {}
        self.job: dict[str, Any] = {}
        self.shared_place: str | None = None

    def __enter__(self) -> Guard:
        self._scratch = Scratch()
        self.above = [self._scratch.path]
        self.job = {"veto": str(self._scratch.path)}
        self._before = dict(_files(self._folders))
        return self

    def __exit__(self, *_: object) -> None:
        if self._scratch is not None:
            self._scratch.remove()

    def share(self, folder: Path) -> None:
        """What lies in the temporary folder is free."""

    def wrap(self, command: Sequence[str]) -> list[str]:
        return list(command)

    def changed(self) -> list[Path]:
        """A library may write past the agent."""
        return [Path(path) for path, state in self._before.items() if _state(path) != state]

    def refused(self) -> str | None:
        assert self._scratch is not None
        try:
            told = (self._scratch.path / REFUSED).read_bytes().split(b"\0")
        except OSError:
            return None
        return os.fsdecode(told[-2]) if len(told) > 1 else None

    def limit_met(self, said: str) -> tuple[str, dict[str, str | int]] | None:
        return None

    def overfull(self) -> Path | None:
        return None


def can_be_guarded(line: Sequence[str]) -> bool:
    """Only Python can be: not a shell script, nor a launcher that is none, nor an interpreter that is told to be deaf."""
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
