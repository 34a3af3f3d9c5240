"""Whether other processes took the cores while something was timed: then its time says nothing of the settings."""

from __future__ import annotations

import os
from time import perf_counter_ns
from typing import Any

from _flatout_agent.timeline.hooks.cpu_contention import own_time_used

SATURATED = 0.9  # of all cores busy: below it there was a core for whoever wanted one
TAKEN = 0.2  # of the machine by others


class OtherLoad:
    """From its making to `took_the_cores`. Where the system does not count it, nobody did."""

    def __init__(self) -> None:
        self._began = perf_counter_ns()
        self._busy, self._own = _busy_ns(), own_time_used()

    def took_the_cores(self) -> bool:
        busy, span = _busy_ns(), perf_counter_ns() - self._began
        if busy is None or self._busy is None or span <= 0:
            return False
        whole = span * (os.cpu_count() or 1)
        used, own = busy - self._busy, own_time_used() - self._own
        return bool(used >= SATURATED * whole and used - own >= TAKEN * whole)


def _busy_ns() -> Any:
    """Of all cores together, by whatever process."""
    try:
        with open("/proc/stat", "rb") as file:
            words = file.readline().split()
        user, nice, system, _, _, irq, softirq = (int(word) for word in words[1:8])
        return (user + nice + system + irq + softirq) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return None
