"""Which files the output of this command goes to: `flatout tune train.py > log.txt`, or `| tee log.txt`.

They change while a trial runs, and no trial has changed them. Linux alone tells what the others of a pipeline have open.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

File = tuple[int, int]  # its device and its number there


def own_output() -> set[File]:
    found = set()
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            found.add(_file(os.fstat(descriptor)))
    if os.path.isdir("/proc/self/fdinfo"):
        for pid in _pipeline():
            found.update(_written_by(pid))
    return found


def _pipeline() -> Iterator[int]:
    """The processes of our group, as a shell makes one for each line; a trial has another one."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.getpgid(int(name)) == os.getpgrp():
                    yield int(name)


def _written_by(pid: int) -> Iterator[File]:
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/fdinfo/{descriptor}", encoding="ascii") as told:
                flags = next((line.split()[1] for line in told if line.startswith("flags:")), "0")
                if int(flags, 8) & (os.O_WRONLY | os.O_RDWR):
                    yield _file(os.stat(f"/proc/{pid}/fd/{descriptor}"))


def _file(told: os.stat_result) -> File:
    return told.st_dev, told.st_ino
