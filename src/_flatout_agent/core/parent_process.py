"""Whoever started this process. A trial that nobody waits for any more ends, with all that it started."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

PR_SET_PDEATHSIG = 1


class Parent:
    """Made before anything else is imported: the front may be gone when torch is there."""

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._from_main_thread = False
        self._libc: Any = None

    def end_if_gone(self) -> None:
        if os.getppid() != self._pid:
            os._exit(0)

    def before_fork(self) -> None:
        """Linux ties a process to the thread that forked it: only the one that ends last will do."""
        self._from_main_thread = threading.current_thread() is threading.main_thread()
        if self._libc is None and sys.platform == "linux":
            import ctypes

            self._libc = ctypes.CDLL(None)

    def after_fork(self) -> None:
        """In a forked child: mostly a worker, which would look for its parent only when it has nothing to fetch."""
        self._pid = os.getppid()
        if self._from_main_thread and self._libc is not None:
            self._libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
