"""How far the device is behind the host: the completion of an event less the host's time of its record.

Near zero in the middle of a step, the device has run dry and waits for the host. The two clocks are held together by an
anchor: an event recorded when the device had nothing left to do, so that it completed at the host's time.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

MOST_PENDING = 16
ANCHOR_HOLDS = 5_000_000_000  # then the clocks may have drifted apart by some microseconds
RUN_DRY = 100_000  # nanoseconds: less than a few launches' work


class Lag:
    """Fed on the steps that are looked at closely."""

    def __init__(self, torch: Any) -> None:
        self._cuda = torch.cuda
        self._anchor: tuple[Any, int] | None = None
        self._pending: list[tuple[Any, tuple[Any, int], int]] = []
        self._spare: list[Any] = []
        self.count = 0
        self.starved = 0
        self.total = 0

    def sample(self) -> None:
        """In the middle of a step. Waits for the device once in five seconds, to anchor the clocks."""
        self._resolve()
        now = perf_counter_ns()
        if self._anchor is None or now - self._anchor[1] > ANCHOR_HOLDS:
            self._cuda.current_stream().synchronize()  # not `cuda.synchronize`, which is watched
            event = self._cuda.Event(enable_timing=True)
            event.record(self._cuda.current_stream())
            self._anchor = (event, perf_counter_ns())
        elif len(self._pending) < MOST_PENDING:
            event = self._spare.pop() if self._spare else self._cuda.Event(enable_timing=True)
            event.record(self._cuda.current_stream())
            self._pending.append((event, self._anchor, perf_counter_ns()))

    def _resolve(self) -> None:
        while self._pending and self._pending[0][0].query():
            event, (anchor, anchored), recorded = self._pending.pop(0)
            if anchor.query():
                behind = max(0, int(anchor.elapsed_time(event) * 1e6) - (recorded - anchored))
                self.count += 1
                self.total += behind
                self.starved += behind < RUN_DRY
            self._spare.append(event)

    def told(self) -> dict[str, Any]:
        self._resolve()
        return {"lag": {"count": self.count, "starved": self.starved, "mid_ns": self.total}} if self.count else {}
