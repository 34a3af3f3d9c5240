"""Keeps NVML open while GPUs are sampled: initialised once, each GPU's handle requested once.

Whatever fails is asked for again later: a driver that is loaded again, a card that comes back. Nothing here raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from flatout.base.records import Missing
from flatout.machine import nvml

T = TypeVar("T")

# After these a handle tells nothing any more …
HANDLE_IS_GONE = frozenset({"nvml-gpu-lost", "nvml-not-open", "nvml-unknown-error", "nvml-reset-required"})
# … and after these the library must be started again.
CLOSED = frozenset({"nvml-not-open", "nvml-driver-not-loaded", "nvml-version-mismatch"})

# Answers in a row without a value: then the handle itself is in doubt, and a new one is asked for.
SILENT = 32

# Looks until a start that failed is tried again: 1, 2, 4 … Each try searches the disk for the library.
LONGEST_PAUSE = 64


class Door:
    """`look()` first, then `ask` as often as wanted."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._why = Missing("not-asked")
        self._handles: dict[int, Any] = {}
        self._silent: dict[int, int] = {}
        self._pause = 0
        self._wait = 0

    def look(self) -> int | Missing:
        """How many cards there are now."""
        if self._nvml is None and not self._opened():
            return self._why
        count = nvml.ask(self._nvml, lambda n: int(n.nvmlDeviceGetCount()))
        if isinstance(count, Missing):
            self._failed(count)
            return count
        return count if 0 <= count < 1024 else Missing("implausible", str(count))

    def ask(self, index: int, question: Callable[[Any, Any], T]) -> T | Missing:
        if self._nvml is None:
            return self._why
        handle = self._handles.get(index)
        if handle is None:
            handle = nvml.ask(self._nvml, lambda n: n.nvmlDeviceGetHandleByIndex(index))
            if isinstance(handle, Missing):
                self._failed(handle)
                return handle
            self._handles[index] = handle
        answer = nvml.ask(self._nvml, question, handle)
        silent = self._silent[index] = self._silent.get(index, 0) + 1 if isinstance(answer, Missing) else 0
        if isinstance(answer, Missing):
            if answer.reason in HANDLE_IS_GONE or silent >= SILENT:
                self._handles.pop(index, None)
                self._silent[index] = 0
            self._failed(answer)
        return answer

    def forget(self) -> None:
        """The handles: cards have come or gone, and numbers mean others."""
        self._handles.clear()

    def close(self) -> None:
        if self._nvml is not None:
            nvml.stop(self._nvml)
        self._nvml = None
        self._handles.clear()

    def _opened(self) -> bool:
        if self._wait:
            self._wait -= 1
            return False
        started = nvml.start()
        if isinstance(started, Missing):
            self._why = started
            self._pause = self._wait = min(LONGEST_PAUSE, max(1, 2 * self._pause))
            return False
        self._nvml, self._pause = started, 0
        return True

    def _failed(self, why: Missing) -> None:
        if why.reason in CLOSED:
            self._why = why
            self.close()
