"""Temporary folders that are always removed, also those left by a front that was killed.

A folder is held by a lock on a file in it. The lock goes with its owner, however that ends, and holds across containers
that share a file system, where process numbers would mislead.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from flatout.launch.reaper import remove

if sys.platform != "win32":
    import fcntl

PREFIX = "flatout-tmp-"
LOCK = "held"
YOUNG_S = 60.0
LEAST_ROOM = 65536  # bytes: an answer of a trial is far smaller
SHARED_MEMORY = "/dev/shm"
LASTING = "/var/tmp"  # on a disk where the usual place is memory
LONGEST_TEMPORARY = 50  # characters: the names of sockets in it may have 108


class Scratch:
    """A temporary folder of ours. `place` None: where temporary folders usually are."""

    def __init__(self, place: str | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        if sys.platform != "win32":
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        atexit.register(self.remove)  # a signal may come before anybody is there to remove it

    def remove(self) -> None:
        atexit.unregister(self.remove)
        if self._lock >= 0:
            remove(str(self.path))
            os.close(self._lock)
            self._lock = -1


def check_room(path: Path) -> None:
    """A full disk is no fault of whoever met it first."""
    if shutil.disk_usage(path).free < LEAST_ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def temporary_inside(place: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """For children that are killed, and leave what they put into the temporary folder: one that goes with ours.

    Not where the user named one, which may hold more than litter.
    """
    inside = place / "t"
    if any(name in environ for name in ("TMPDIR", "TEMP", "TMP")) or len(str(inside)) > LONGEST_TEMPORARY:
        return {}
    inside.mkdir()
    return {"TMPDIR": str(inside)}


def outside(folders: Iterable[Path]) -> str | None:
    """A place for temporary folders that is not below any of these: what is written there must be seen by both sides."""
    usual = Path(tempfile.gettempdir()).resolve()
    covered = any(folder == usual or folder in usual.parents for folder in folders)
    return SHARED_MEMORY if covered else None


def scratch_places() -> list[str]:
    """Where large folders of ours may lie, the usual place first."""
    return [place for place in dict.fromkeys((tempfile.gettempdir(), LASTING)) if os.path.isdir(place)]


def sweep() -> None:
    """Remove what a front left that was killed together with its keeper: folders of ours that nobody holds."""
    for place in (*scratch_places(), SHARED_MEMORY):
        for path in Path(place).glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                if _is_ours(path) and not _held(path / LOCK):
                    remove(str(path))


def _is_ours(path: Path) -> bool:
    return sys.platform != "win32" and path.lstat().st_uid == os.geteuid() and path.is_dir()


def _held(lock: Path) -> bool:
    """Without a lock, or with one that is young, it is being made this moment, by a search that begins beside ours."""
    try:
        if time.time() - lock.stat().st_mtime < YOUNG_S:
            return True
        descriptor = os.open(lock, os.O_RDWR)
    except OSError:
        return True
    try:
        if sys.platform != "win32":
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
