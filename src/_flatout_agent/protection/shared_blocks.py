"""Blocks of `multiprocessing.shared_memory`: a trial makes and removes its own, and leaves alone those that were there.

They lie in shared memory under names that nothing leads elsewhere, and are opened by C. What has not changed since the
trial began is none of the trial's.
"""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

from _flatout_agent.core.after_import import after_import
from _flatout_agent.protection import system_calls as system
from _flatout_agent.wire import GAVE_UP

FOLDER = "/dev/shm/"


class SharedBlocks:
    def __init__(self, began_ns: int, guard: Any) -> None:
        self._began_ns = began_ns
        self._guard = guard

    def is_own(self, path: str) -> bool:
        try:
            return path.startswith(FOLDER) and system.lstat(path).st_ctime_ns >= self._began_ns
        except OSError:
            return False

    def keep(self, name: Any) -> None:
        path = FOLDER + os.fsdecode(name).lstrip("/")
        if system.exists(path) and not self.is_own(path):
            self._guard.refuse(path)

    def put_on(self) -> None:
        after_import("_posixshmem", self._exchange)

    def _exchange(self, module: ModuleType, nanoseconds: int) -> None:
        """Fails closed, as the guard does."""
        try:
            for name in ("shm_open", "shm_unlink"):
                setattr(module, name, self._kept(getattr(module, name)))
        except Exception:
            os._exit(GAVE_UP)

    def _kept(self, plain: Any) -> Any:
        @functools.wraps(plain)
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            flags = kwargs.get("flags", args[0] if args else os.O_RDWR)
            if flags & os.O_ACCMODE != os.O_RDONLY:
                self.keep(path)
            return plain(path, *args, **kwargs)

        return call
