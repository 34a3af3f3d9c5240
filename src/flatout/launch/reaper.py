"""A second process that ends the trials when the front is gone, however it ended.

A program of its own, of the standard library alone. Its standard input is a pipe that the front holds. Lines on it name the
process group of the child at work (0: none); its end is the end of the front. Arguments: the words that every process of a
trial has in its environment, then the folders to remove.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator

ROUNDS, PAUSE_S = 100, 0.02  # a process that is being killed may fork once more


def main(mark: str, folders: list[str]) -> None:
    # What ends the front must not end us before it.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    group = 0
    for line in sys.stdin:
        group = int(line)
    if group > 1 and hasattr(os, "killpg"):
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    end_marked(os.fsencode(mark))
    for folder in folders:
        remove(folder)


def end_marked(mark: bytes) -> None:
    for _ in range(ROUNDS):
        left = list(marked(mark))
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_S)


def marked(mark: bytes) -> Iterator[int]:
    """Linux alone tells another process's environment; elsewhere the group has to do."""
    if not os.path.isdir("/proc/self"):
        return
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read():
                    yield int(name)


def remove(folder: str) -> None:
    """Also what an overlay's work folder, or a script, has taken the rights from."""
    shutil.rmtree(folder, ignore_errors=True)
    for inside, _, _ in os.walk(folder):  # from above: what is opened here is walked into next
        with contextlib.suppress(OSError):
            for name in os.listdir(inside):
                if not os.path.islink(os.path.join(inside, name)):
                    os.chmod(os.path.join(inside, name), 0o700)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
