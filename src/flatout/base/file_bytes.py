"""Reads files that a user names: only regular files and only up to a limit, so that no pipe or device blocks."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def bytes_of(path: Path, most: int) -> bytes:
    """An OSError where it cannot be had; with EFBIG where it is larger."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no file")
        data = file.read(most + 1)  # its size may be told as 0, as in /proc
    if len(data) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return data
