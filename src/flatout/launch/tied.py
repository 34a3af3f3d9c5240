"""Starts a command that ends together with the process that started it.

Also where that one is killed together with the reaper (`reaper.py`). What the command leaves in the background stays below
it, so that it is found and ended with it, whatever it did to its session and environment. A program of its own, of the
standard library alone; its words are the process number of the one that starts it, and the command. Only Linux can do both.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
NOT_FOUND = 127


def tied(command: Sequence[str]) -> list[str]:
    """The command with this program before it."""
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main(parent: int, command: list[str]) -> NoReturn:
    import ctypes

    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.getppid() != parent:  # it was killed before we asked
        os._exit(NOT_FOUND)
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores these, and what is ignored stays so
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(NOT_FOUND)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
