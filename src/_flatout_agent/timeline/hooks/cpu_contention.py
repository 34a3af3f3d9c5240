"""Whether the script got the processor when it wanted it: Linux counts how long a thread was ready and had to queue."""

from __future__ import annotations

import os
import sys
from time import perf_counter_ns
from typing import Any, Callable


class Cores:
    """Of the training thread, and of the processes that it has started (loaders' workers)."""

    def __init__(self) -> None:
        self._began = 0
        self._thread: tuple[int, int] | None = None
        self._workers = _Sums(lambda pid: _schedule(f"/proc/{pid}/schedstat"), (0, 0))  # running, queueing
        self._own = _Sums(_time_used, (0,))
        self._own_before = 0

    def begin(self) -> None:
        """In the training thread, after the first step: what a start-up does to a machine is another matter."""
        if not self._began:
            self._thread = _schedule("/proc/thread-self/schedstat")
            self._own_before = self._own_so_far()
            self._began = perf_counter_ns()

    def told(self) -> dict[str, Any]:
        now = _schedule("/proc/thread-self/schedstat")
        if self._thread is None or now is None:
            return {}
        running, queueing = now[0] - self._thread[0], now[1] - self._thread[1]
        workers = self._workers.of(_children())
        return {
            "cores": {
                "span": perf_counter_ns() - self._began,
                "running": running,
                "queueing": queueing,
                "workers_running": workers[0],
                "workers_queueing": workers[1],
                "own": self._own_so_far() - self._own_before,
            }
        }

    def _own_so_far(self) -> int:
        return self._own.of([os.getpid(), *_children()])[0]


class _Sums:
    """Of figures that the system counts for each process: what one had until it was last seen stays when it is gone."""

    def __init__(self, read: Callable[[int], Any], none: tuple[int, ...]) -> None:
        self._read = read
        self._seen: dict[int, tuple[int, ...]] = {}
        self._gone = none

    def of(self, processes: list[int]) -> tuple[int, ...]:
        seen = {pid: figures for pid in processes if (figures := self._read(pid)) is not None}
        self._gone = _sum([self._gone, *(figures for pid, figures in self._seen.items() if pid not in seen)])
        self._seen = seen
        return _sum([self._gone, *seen.values()])


def _sum(rows: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*rows)))  # noqa: B905


def _children() -> list[int]:
    process = sys.modules.get("multiprocessing.process")
    return [child.pid for child in list(getattr(process, "_children", ())) if child.pid]


def own_time_used() -> int:
    """Nanoseconds of processor time of this process and of those that it has started and that live."""
    return sum(used[0] for pid in (os.getpid(), *_children()) if (used := _time_used(pid)) is not None)


def _time_used(pid: int) -> tuple[int] | None:
    """Nanoseconds of processor time of all threads."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()  # the name before may hold anything
        return ((int(words[11]) + int(words[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK"),)
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
