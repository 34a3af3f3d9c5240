"""Samples GPUs and host again and again, for `flatout watch` and everything that builds on it."""

from __future__ import annotations

from types import TracebackType

from flatout.base.clock import Clock
from flatout.machine.card_look import CardLook
from flatout.machine.host_look import HostLook
from flatout.machine.telemetry import Sample

# The machine's clock was set, or it slept: smaller differences are the drift of two clocks, and left alone.
SET_BY_S = 2.0


class Sampler:
    """`sample()` never raises; it takes as long as the driver takes to answer. Where there is no NVML it tells of the host."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._cards = CardLook()
        self._host = HostLook()
        self._wall = clock.wall() - clock.monotonic()

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._cards.close()

    def now(self) -> float:
        """The wall clock, but one that only goes on: set back, it would lay two histories over each other."""
        elapsed = self._clock.monotonic()
        ahead = self._clock.wall() - (self._wall + elapsed)
        if ahead > SET_BY_S:
            self._wall += ahead
        return self._wall + elapsed

    def sample(self) -> Sample:
        return Sample(t=self.now(), cards=self._cards.look(), host=self._host.look(self._clock.monotonic()))
