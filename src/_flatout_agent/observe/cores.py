"""Whether the script got the processor when it wanted it: Linux counts how long a thread was ready and had to queue."""

from __future__ import annotations

import os
import sys
from time import perf_counter_ns
from typing import Any


class Cores:
    """Of the training thread, and of the processes that it has started (loaders' workers)."""

    def __init__(self) -> None:
        self._began = 0
        self._thread: tuple[int, int] | None = None
        self._workers: dict[int, tuple[int, int]] = {}  # process -> (running, queueing), as last seen
        self._gone = [0, 0]
        self._used: dict[int, int] = {}  # process -> time of all its threads, as last seen
        self._used_by_gone = 0
        self._used_before = 0

    def begin(self) -> None:
        """In the training thread, after the first step: what a start-up does to a machine is another matter."""
        if not self._began:
            self._thread = _schedule("/proc/thread-self/schedstat")
            self._used_before = self._used_so_far()
            self._began = perf_counter_ns()

    def told(self) -> dict[str, Any]:
        now = _schedule("/proc/thread-self/schedstat")
        if self._thread is None or now is None:
            return {}
        running, queueing = now[0] - self._thread[0], now[1] - self._thread[1]
        workers = self._of_workers()
        return {
            "cores": {
                "span": perf_counter_ns() - self._began,
                "running": running,
                "queueing": queueing,
                "workers_running": workers[0],
                "workers_queueing": workers[1],
                "own": self._used_so_far() - self._used_before,
            }
        }

    def _of_workers(self) -> tuple[int, int]:
        seen = {pid: figures for pid in _children() if (figures := _schedule(f"/proc/{pid}/schedstat")) is not None}
        for pid, (running, queueing) in self._workers.items():
            if pid not in seen:  # what it had until it was last seen is kept
                self._gone[0] += running
                self._gone[1] += queueing
        self._workers = seen
        running = self._gone[0] + sum(figures[0] for figures in seen.values())
        return running, self._gone[1] + sum(figures[1] for figures in seen.values())

    def _used_so_far(self) -> int:
        used = {pid: time for pid in [os.getpid(), *_children()] if (time := _time_used(pid)) is not None}
        self._used_by_gone += sum(time for pid, time in self._used.items() if pid not in used)
        self._used = used
        return self._used_by_gone + sum(used.values())


def _children() -> list[int]:
    process = sys.modules.get("multiprocessing.process")
    return [child.pid for child in list(getattr(process, "_children", ())) if child.pid]


def _time_used(pid: int) -> int | None:
    """Nanoseconds of processor time of all threads."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()  # the name before may hold anything
        return (int(words[11]) + int(words[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _schedule(path: str) -> tuple[int, int] | None:
    """Nanoseconds on a core, and nanoseconds ready for one."""
    if os.name != "posix":
        return None
    try:
        with open(path, "rb") as file:
            running, queueing, _ = file.read().split()
        return int(running), int(queueing)
    except (OSError, ValueError):
        return None
