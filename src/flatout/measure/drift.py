"""A machine that changes while it is measured: a trend (a card warming up) and a sudden fall (a card that throttles).

Both are looked for in the baseline alone, because the other arm may differ for a reason. The order A B B A cancels a
straight drift in the mean whatever is found here; taking it out as well keeps it from widening the interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from flatout.base.records import Struct
from flatout.measure.trend import theil_sen

SHOWN = NormalDist().inv_cdf(1 - 0.05 / 2)  # standard deviations of an order without a trend
FEWEST_FOR_TREND = 6  # with four values even a perfect order happens by chance once in twelve
THROTTLED_BY = 0.05  # a fall smaller than this is drift
THROTTLED_SPREADS = 4.0  # and it must stand out of the spread on both sides


class Drift(Struct, frozen=True, kw_only=True):
    """How the baseline moved: its change in all as a fraction (-0.03: three per cent slower at the end)."""

    change: float = 0.0
    per_position: float = 0.0  # of the logarithm; zero where no trend was shown
    throttled_after: int | None = None  # the last whole pair before the fall


def throttling(logs: Sequence[float]) -> int | None:
    """How many of the values came before a sudden fall, or None where there was none."""
    best, gap = None, THROTTLED_BY
    # One value may come before the fall, but not one after it: a single low value at the end is a stall.
    for split in range(1 if len(logs) > 3 else 2, len(logs) - 1):
        before, after = logs[:split], logs[split:]
        fall = _mean(before) - _mean(after)
        spread = max(max(before) - min(before), max(after) - min(after)) / 2
        if fall > gap and fall > THROTTLED_SPREADS * spread:
            best, gap = split, fall
    return best


def drift_of(places: Sequence[float], logs: Sequence[float]) -> Drift:
    fallen = throttling(logs)
    if fallen is not None:
        change = math.expm1(_mean(logs[fallen:]) - _mean(logs[:fallen]))
        return Drift(change=change, throttled_after=fallen - 1)
    if len(logs) < FEWEST_FOR_TREND:
        return Drift()
    # From the first one on, and without the last bits: what is equal in one unit is equal in every other.
    found = theil_sen([(place, round(log - logs[0], 9)) for place, log in zip(places, logs, strict=True)])
    if found is None or abs(found.significance) <= SHOWN:
        return Drift()
    return Drift(change=math.expm1(found.slope * (places[-1] - places[0])), per_position=found.slope)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
