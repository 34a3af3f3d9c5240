"""Runs a probe in a thread with a time limit: one that hangs or fails loses only its own answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from flatout.base.records import Missing

T = TypeVar("T")


class Question(Generic[T]):
    """Asked at once; `answer` waits for what is left of its time."""

    def __init__(self, name: str, limit_s: float, ask: Callable[[], T]) -> None:
        self.name = name
        self.limit_s = limit_s
        self._ask = ask
        self._answer: T | Missing = Missing("probe-timeout", f"{name}: {limit_s:g} s")
        self._began = time.monotonic()
        # A daemon: a call stuck in a driver must not keep flatout from ending.
        self._thread = threading.Thread(target=self._run, name=f"probe-{name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._ask()
        except Exception as error:  # noqa: BLE001 - a probe that fails is our fault: its facts are missing, the others are not
            self._answer = Missing("probe-crashed", f"{self.name}: {type(error).__name__}: {error}"[:300])

    def wait(self, seconds: float) -> None:
        """For the answer, but no longer than this."""
        self._thread.join(seconds)

    def answer(self) -> T | Missing:
        self._thread.join(max(0.0, self._began + self.limit_s - time.monotonic()))
        return self._answer
