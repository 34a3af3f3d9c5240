"""The front's side of `reaper`: holds the pipe and reports which child is running."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from flatout.launch import reaper

LONGEST_S = 10.0  # to wait for it at the end: killing takes moments


class Keeper:
    """While it is there, nothing of a trial outlives us: no process, no folder."""

    def __init__(self, mark: str, folders: Sequence[Path]) -> None:
        words = [sys.executable, "-I", "-S", reaper.__file__, mark, *map(str, folders)]
        # A session of its own: Ctrl-C is not meant for it.
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def at_work(self, group: int) -> None:
        """The process group of the child, or 0. A keeper that somebody killed is missed only if we are killed, too."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(b"%d\n" % group)
            self._process.stdin.flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(LONGEST_S)
