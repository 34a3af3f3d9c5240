"""What the cards draw while a segment runs, from the outside: the training is not asked for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flatout.base.records import Missing
from flatout.machine.model import Gpu

EVERY_S = 0.2
UNKNOWN = Missing("not-reported")

Look = Callable[[], Sequence[Gpu]]


class PowerMeter:
    """The mean over one segment, of all cards that tell; a card at rest draws its share before and after alike."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._told: list[float] = []
        self._next = 0.0

    def begin(self, now: float) -> None:
        self._told = []
        self._next = now

    def sample(self, now: float) -> None:
        if now < self._next:
            return
        self._next = now + EVERY_S
        drawn = [gpu.power_draw_w for gpu in self._look() if isinstance(gpu.power_draw_w, float)]
        if drawn:
            self._told.append(sum(drawn))

    def mean(self) -> float | Missing:
        return sum(self._told) / len(self._told) if self._told else UNKNOWN
