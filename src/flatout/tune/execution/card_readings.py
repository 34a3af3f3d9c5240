"""What the cards draw, and how much of the time they work, while a segment runs: seen from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flatout.base.records import Missing
from flatout.machine.machine_facts import Gpu

EVERY_S = 0.2
UNKNOWN = Missing("not-reported")

Look = Callable[[], Sequence[Gpu]]


class CardMeter:
    """Means over one segment."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._watts: list[float] = []
        self._working: list[float] = []
        self._next = 0.0

    def begin(self, now: float) -> None:
        self._watts, self._working = [], []
        self._next = now

    def sample(self, now: float) -> None:
        if now < self._next:
            return
        self._next = now + EVERY_S
        cards = self._look()
        drawn = [gpu.power_draw_w for gpu in cards if isinstance(gpu.power_draw_w, float)]
        if drawn:
            self._watts.append(sum(drawn))
        working = [gpu.utilisation for gpu in cards if isinstance(gpu.utilisation, int)]
        if working:
            self._working.append(max(working) / 100)

    def power_w(self) -> float | Missing:
        """Of all cards that tell; one at rest draws its share before and after alike."""
        return sum(self._watts) / len(self._watts) if self._watts else UNKNOWN

    def working(self) -> float | Missing:
        """Of the busiest card. The driver looks back for up to a second: what it says first is of the segment before."""
        later = self._working[len(self._working) // 2 :]
        return sum(later) / len(later) if later else UNKNOWN
