"""The arithmetic under an interval: Student's quantiles, a trimmed mean, and its bootstrap for a handful of values.

A percentile bootstrap of six values is far too narrow: it knows the spread of the six, not that six are few. Its two
half-widths are therefore stretched by t/z and by the root of n/(n-1), as Hesterberg proposes ("What Teachers Should Know
About the Bootstrap", 2015, section 3). The tests hold the coverage that results.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

SEED = 20151
RESAMPLES = 1999
TRIMMED = 1 / 8  # of each end: one stall among eight pairs does not move the mean


def trim_count(count: int) -> int:
    return int(count * TRIMMED)


def trimmed_mean(values: Sequence[float]) -> float:
    cut = trim_count(len(values))
    inner = sorted(values)[cut : len(values) - cut]
    return math.fsum(inner) / len(inner)


def bootstrap_interval(values: Sequence[float], alpha: float) -> tuple[float, float, float]:
    """The trimmed mean of `values` and its bounds at level 1 - alpha, two-sided; at least two values."""
    count = len(values)
    ordered = sorted(values)
    centre = trimmed_mean(ordered)
    value_at = ordered.__getitem__
    inner = count - 2 * trim_count(count)
    means = sorted(sum(map(value_at, picks)) / inner for picks in _resamples(count))
    skip = min(int(alpha / 2 * RESAMPLES), RESAMPLES // 2)
    stretch = student(1 - alpha / 2, inner - 1) / normal(1 - alpha / 2) * math.sqrt(count / (count - 1))
    return centre, centre - (centre - means[skip]) * stretch, centre + (means[-1 - skip] - centre) * stretch


@lru_cache(maxsize=64)
def _resamples(count: int) -> tuple[tuple[int, ...], ...]:
    """Positions into the sorted values, sorted and trimmed once for all: a resample then costs one sum.

    The same draws for every comparison of this length, so that a resumed search decides as the interrupted one did.
    """
    draw = random.Random(SEED + count)
    cut = trim_count(count)
    picked = (sorted(draw.choices(range(count), k=count)) for _ in range(RESAMPLES))
    return tuple(tuple(picks[cut : count - cut]) for picks in picked)


def normal(probability: float) -> float:
    return NormalDist().inv_cdf(probability)


@lru_cache(maxsize=256)
def student(probability: float, freedom: int) -> float:
    """Student's quantile for a probability above one half, by halving: called with few different arguments."""
    low, high = 0.0, 1.0
    while _student_below(high, freedom) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_below(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def _student_below(value: float, freedom: int) -> float:
    """P(T < value) for value >= 0: the finite series for whole degrees of freedom (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    angle = math.atan(value / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    term = sine * cosine if freedom % 2 else sine
    total = term if freedom > 1 else 0.0
    for k in range(3 if freedom % 2 else 2, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    within = 2 / math.pi * (angle + total) if freedom % 2 else total
    return (1 + within) / 2
