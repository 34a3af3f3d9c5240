"""What a start of workers takes, and what it takes to see that those of the last epoch are as good: the cheaper is done."""

from __future__ import annotations

from _flatout_agent.knobs.loader import worker_limits

LEAST_READ = 32 << 20  # bytes of tensors, arrays and long lists are read at each turn, whatever that takes …
FIRST_READ = 256 << 20  # … so many once, while nobody knows yet what a start of workers takes …
READ_A_SECOND = 1 << 30  # … and from then on as many as take no longer than it, at this speed until one was measured
TOLD_BY = 8 << 20  # bytes: what reading fewer takes says nothing of the speed


class TurnCosts:
    """Of one loader, as measured."""

    def __init__(self) -> None:
        self._start_s: float | None = None  # of one worker; the least seen, since others may have been in the way
        self._a_second: float | None = None  # bytes; the most seen
        self._size = 0  # of what the last look read, or would have had to read at least

    def started(self, workers: int, seconds: float) -> None:
        each = seconds / workers
        self._start_s = each if self._start_s is None else min(self._start_s, each)

    def looked(self, size: int, seconds: float) -> None:
        self._size = size
        if size >= TOLD_BY and seconds > 0:
            self._a_second = max(self._a_second or 0.0, size / seconds)

    def too_much(self, workers: int) -> bool:
        """Whether all of it is known to take longer than a start of workers."""
        return self._size > self.most_bytes(workers)

    def most_bytes(self, workers: int) -> int:
        """Where workers and training have fewer processors than they are, their looks take turns."""
        if self._start_s is None:
            return max(LEAST_READ, FIRST_READ)
        at_once = max(1.0, (workers + 1) / worker_limits.processors())
        return max(LEAST_READ, int((self._a_second or READ_A_SECOND) * self._start_s * workers / at_once))
