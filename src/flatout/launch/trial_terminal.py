"""The standard input of a trial: a terminal of its own where the user's is one, else nothing.

Some scripts ask their terminal for its size and die without one. Whoever reads from it is told that there is nothing to read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys

if sys.platform != "win32":
    import fcntl
    import pty
    import termios

ENDS_OF_INPUT = 16  # for so many reads


class TrialInput:
    """`descriptor` is what the child gets as its standard input."""

    def __init__(self) -> None:
        self.descriptor: int = subprocess.DEVNULL
        self._ours = -1
        if sys.platform != "win32" and _is_terminal(sys.stdin):
            with contextlib.suppress(OSError):
                self._open()

    def _open(self) -> None:
        self._ours, self.descriptor = pty.openpty()
        size = shutil.get_terminal_size()
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", size.lines, size.columns, 0, 0))
        os.write(self._ours, b"\x04" * ENDS_OF_INPUT)

    def started(self) -> None:
        """The child has its own copy."""
        if self._ours >= 0:
            os.close(self.descriptor)

    def close(self) -> None:
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1


def _is_terminal(stream: object) -> bool:
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):  # None, or closed
        return False
