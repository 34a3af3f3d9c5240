"""Whether a series rises: slopes between all pairs of points (Theil and Sen), and the sign test of Mann and Kendall.

Robust on purpose: one odd point (an evaluation, a larger last batch) moves neither the slope nor its interval.
"""

from __future__ import annotations

import math
from collections import Counter
from statistics import median

from flatout.base.records import Struct

Point = tuple[float, float]

Z95 = 1.96


class Trend(Struct, frozen=True, kw_only=True):
    slope: float
    low: float  # of the 95 % interval of the slope
    high: float
    significance: float  # standard deviations by which the rises outnumber the falls; negative where it falls


def theil_sen(points: list[Point]) -> Trend | None:
    """None where fewer than three points, or no two places, are known."""
    ordered = sorted(points)
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for index, earlier in enumerate(ordered)
        for later in ordered[index + 1 :]
        if later[0] > earlier[0]
    )
    if len(ordered) < 3 or not slopes:
        return None
    spread = math.sqrt(_variance([value for _, value in ordered]))
    reach = Z95 * spread
    count = len(slopes)
    low = slopes[max(0, math.floor((count - reach) / 2))]
    high = slopes[min(count - 1, math.ceil((count + reach) / 2))]
    rises = sum((slope > 0) - (slope < 0) for slope in slopes)
    return Trend(slope=median(slopes), low=low, high=high, significance=_standardised(rises, spread))


def _variance(values: list[float]) -> float:
    """Of rises minus falls where there is no trend; equal values tell nothing and are taken out."""
    n = len(values)
    tied = sum(t * (t - 1) * (2 * t + 5) for t in Counter(values).values())
    return (n * (n - 1) * (2 * n + 5) - tied) / 18


def _standardised(rises: int, spread: float) -> float:
    if spread <= 0 or rises == 0:
        return 0.0
    return (rises - math.copysign(1, rises)) / spread
