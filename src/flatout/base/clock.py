"""The clock as an argument: code that needs the time takes a Clock, so that tests can replace it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that never run backwards: for durations."""

    def wall(self) -> float:
        """Seconds since the epoch: for dates, and to meet the clocks of other processes."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""


class SystemClock:
    def monotonic(self) -> float:
        return time.perf_counter()

    def wall(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
