"""Is B faster than A: throughput over windows, and the interval of a ratio from interleaved pairs.

Throughput is samples over seconds, both summed: medians of waits forget the stalls that a training pays for.

A pair is one segment of A and one of B beside each other in time; its value is the logarithm of their ratio. The order
A B B A, B A A B … cancels a drift that is straight, and nearly one that bends, and makes neighbouring pairs err in opposite
directions where the noise has a memory.

Looking more than once: the pairs are judged after each of a few agreed looks, and every look uses its share of alpha
(repeated confidence intervals after Jennison and Turnbull, with Bonferroni's shares). The bounds then hold at all looks at
once, at 95 %, whatever rule stops the measuring, at the price of being wider than those of a single look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise

from flatout.base.records import Missing, Struct
from flatout.measure.drift import Drift, drift_of
from flatout.measure.intervals import bootstrap_interval, normal, trimmed_mean

ALPHA = 0.05
FEWEST_PAIRS = 4  # below, a spread is a guess and the answer is "unknown"
LEAST_GAIN = 0.005  # below this nothing is claimed, however quiet the machine
PAIRS_AT_LOOK = (4, 8, 12, 20, 32)
SHARES = (1 / 3, 1 / 3, 1 / 6, 1 / 10, 1 / 15)  # of alpha: most answers come early, and only restless loops are asked for more
FADES = 0.8  # of an earlier comparison's weight in the noise, at each that follows


class Window(Struct, frozen=True):
    samples: float
    seconds: float


class Pair(Struct, frozen=True):
    """Throughput of A and of B, measured one right after the other."""

    a: float
    b: float
    a_first: bool

    @property
    def log_ratio(self) -> float:
        return math.log(self.b / self.a)


class Noise(Struct, frozen=True):
    """The noise as it is known so far, and from how many steps."""

    spread: float | Missing = Missing("not-measured")
    weight: float = 0.0


class Answer(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"  # no difference outside the noise
    UNKNOWN = "unknown"  # too little to say


class Comparison(Struct, frozen=True, kw_only=True):
    """The ratio of B's throughput to A's; its bounds hold at 95 % over all looks."""

    answer: Answer
    ratio: float | Missing
    lower: float | Missing
    upper: float | Missing
    pairs: int
    noise_floor: float  # a gain within this is not claimed
    drift: Drift


def throughput(windows: Sequence[Window]) -> float | Missing:
    seconds = math.fsum(window.seconds for window in windows)
    samples = math.fsum(window.samples for window in windows)
    return samples / seconds if seconds > 0 and samples > 0 else Missing("nothing-timed")


def spread_of_pairs(rates: Sequence[float]) -> float | Missing:
    """Standard deviation of the log ratio of two neighbouring measurements of the same thing: the noise."""
    if len(rates) < 3:
        return Missing("too-few")
    steps = [math.log(second / first) for first, second in pairwise(rates)]
    # About zero, not about their mean: without an effect the expected step is none.
    return math.sqrt(math.fsum(step * step for step in steps) / len(steps))


def noise_after(noise: Noise, pairs: Sequence[Pair]) -> Noise:
    """With what the pairs of one comparison did beside each other: a machine that was restless at first may be quiet since, or
    the other way round. What was seen earlier fades."""
    values, _ = _without_drift(pairs)
    freedom = len(values) - 1
    if len(values) < FEWEST_PAIRS:
        return noise
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    before = noise.spread if isinstance(noise.spread, float) else 0.0  # of no weight then
    faded = FADES * noise.weight
    return Noise(math.sqrt((faded * before**2 + squares) / (faded + freedom)), faded + freedom)


def compare(pairs: Sequence[Pair], noise: float | Missing, looks: Sequence[int] = PAIRS_AT_LOOK) -> Comparison:
    """B against A from pairs in the order of their time; `noise` is `spread_of_pairs` of the baseline."""
    kept, drift = _without_drift(pairs)
    floor = noise_floor(noise, len(kept))
    if len(kept) < FEWEST_PAIRS:
        few = Missing("too-few-pairs")
        ratio = math.exp(trimmed_mean(kept)) if kept else few
        return Comparison(
            answer=Answer.UNKNOWN, ratio=ratio, lower=few, upper=few, pairs=len(kept), noise_floor=floor, drift=drift
        )
    centre, low, high = bootstrap_interval(kept, _alpha_at(len(pairs), looks))
    ratio, lower, upper = math.exp(centre), math.exp(low), math.exp(high)
    answer = Answer.SAME
    if lower > 1 and ratio - 1 > floor:
        answer = Answer.FASTER
    elif upper < 1 and 1 - ratio > floor:
        answer = Answer.SLOWER
    return Comparison(answer=answer, ratio=ratio, lower=lower, upper=upper, pairs=len(kept), noise_floor=floor, drift=drift)


def _alpha_at(pairs: int, looks: Sequence[int]) -> float:
    if tuple(looks) != PAIRS_AT_LOOK:
        return ALPHA / max(1, len(looks))
    place = next((number for number, look in enumerate(looks) if look >= pairs), len(looks) - 1)
    return ALPHA * SHARES[place]


def plausible_gain(pairs: Sequence[Pair]) -> float | Missing:
    """The gain that one could still hope for: the upper end of an 80 % interval, at a single look.

    For giving up early, never for a claim: stopping for want of hope makes false claims rarer, not more frequent.
    """
    kept, _ = _without_drift(pairs)
    if len(kept) < FEWEST_PAIRS:
        return Missing("too-few-pairs")
    return math.expm1(bootstrap_interval(kept, 0.2)[2])


def plainly_slower(pairs: Sequence[Pair], noise: float | Missing) -> bool:
    """Every pair so far far below one: enough to stop measuring, too little for an interval. Not where an arm does not repeat
    itself: the noise was measured once, and may have been a quiet moment."""
    if len(pairs) < 2:
        return False
    scatter = max(abs(math.log(one.a / other.a)) for one, other in pairwise(pairs))
    scatter = max(scatter, *(abs(math.log(one.b / other.b)) for one, other in pairwise(pairs)))
    least = max(0.02, 2 * scatter, 3 * (noise if isinstance(noise, float) else 0.02))
    return all(pair.log_ratio < -least for pair in pairs)


def plainly_faster(pairs: Sequence[Pair], noise: float | Missing) -> bool:
    return plainly_slower([Pair(pair.b, pair.a, not pair.a_first) for pair in pairs], noise)


def noise_floor(noise: float | Missing, pairs: int) -> float:
    """What a mean of so many pairs does on its own at the baseline's noise, and never less than the least gain.

    A second opinion beside the pairs' own spread, which for four pairs is now and then small by luck.
    """
    if isinstance(noise, Missing) or pairs < 1:
        return LEAST_GAIN
    return max(LEAST_GAIN, math.expm1(normal(0.95) * noise / math.sqrt(pairs)))


def _without_drift(pairs: Sequence[Pair]) -> tuple[list[float], Drift]:
    """The pairs' log ratios with a shown trend taken out, and without the pair that a sudden fall went through."""
    if not pairs:
        return [], Drift()
    places = [2 * index + (0 if pair.a_first else 1) for index, pair in enumerate(pairs)]
    drift = drift_of(places, [math.log(pair.a) for pair in pairs])
    values = [pair.log_ratio - drift.per_position * (1 if pair.a_first else -1) for pair in pairs]
    if drift.throttled_after is None:
        return values, drift
    # The fall lies between two measurements of A: in one of their two pairs, or between these.
    torn = max((drift.throttled_after, drift.throttled_after + 1), key=lambda index: _distance(values, index))
    rest = [value for index, value in enumerate(values) if index != torn]
    return (rest if _distance(values, torn) > abs(math.log1p(drift.change)) / 2 else values), drift


def _distance(values: Sequence[float], index: int) -> float:
    others = [value for other, value in enumerate(values) if other != index]
    return abs(values[index] - trimmed_mean(others)) if others else 0.0
