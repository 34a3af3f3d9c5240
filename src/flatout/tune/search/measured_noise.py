"""What the same thing scatters by, for each way of running: at first from the baseline, then also from every comparison."""

from __future__ import annotations

from collections.abc import Sequence

from flatout.base.records import Missing
from flatout.measure.statistics import Noise, Pair, noise_after, spread_of_pairs
from flatout.tune.search.questions_and_answers import Mode

UNKNOWN = Noise()


class Noises:
    def __init__(self) -> None:
        self._known: dict[Mode, Noise] = {}

    def of(self, mode: Mode) -> float | Missing:
        return self._known.get(mode, UNKNOWN).spread

    def first(self) -> float | Missing:
        """Of the way that was looked at first."""
        return next(iter(self._known.values()), UNKNOWN).spread

    def saw_repeated(self, mode: Mode, rates: Sequence[float]) -> None:
        """The baseline over and over; what later looks repeat, a change may lie between."""
        spread = spread_of_pairs(rates)
        if isinstance(spread, float) and mode not in self._known:
            self._known[mode] = Noise(spread, len(rates) - 1)

    def saw_pairs(self, mode: Mode, pairs: Sequence[Pair]) -> None:
        """Of one comparison in a living child: fresh ones scatter in their own way."""
        found = noise_after(self._known.get(mode, UNKNOWN), pairs)
        if found.weight:
            self._known[mode] = found
