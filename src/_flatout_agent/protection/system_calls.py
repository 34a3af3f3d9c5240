"""The file calls of `os` as they were before any of them was redirected: what the redirection itself uses."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, Callable, NoReturn

from _flatout_agent.wire import GAVE_UP, NOT_STARTED

open_file = io.open
open = os.open
read = os.read
write = os.write
close = os.close
fstat = os.fstat
stat = os.stat
lstat = os.lstat
listdir = os.listdir
mkdir = os.mkdir
rmdir = os.rmdir
remove = os.remove
rename = os.replace
readlink: Callable[[Any], Any] = getattr(os, "readlink", os.fspath)
symlink = os.symlink
chmod = os.chmod
utime = os.utime
getcwd = os.getcwd
if sys.platform != "win32":  # which asks for none
    statvfs = os.statvfs


def exists(path: str) -> bool:
    """Also a link that leads nowhere."""
    try:
        lstat(path)
    except (OSError, ValueError):
        return False
    return True


def make_folders(path: str) -> None:
    """With those above it; those that are there stay."""
    missing = []
    while not exists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for one in reversed(missing):
        try:
            mkdir(one, 0o700)
        except FileExistsError:  # by another process
            pass


def append(path: str, line: bytes) -> None:
    descriptor = open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        write(descriptor, line)
    finally:
        close(descriptor)


def path_behind(descriptor: int) -> str:
    """Of an open file or folder; of a pipe or a socket something that is no path."""
    if sys.platform == "darwin":
        import fcntl

        return os.fsdecode(fcntl.fcntl(descriptor, 50, b"\0" * 1024).rstrip(b"\0"))  # F_GETPATH
    return str(readlink(f"/proc/self/fd/{descriptor}"))


def give_up(error: BaseException) -> NoReturn:
    """A trial that would not be held back must not run at all."""
    try:
        write(2, f"{NOT_STARTED} {type(error).__name__}: {error}\n".encode("ascii", "replace"))
    finally:
        os._exit(GAVE_UP)
