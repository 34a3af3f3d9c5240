"""Whether a larger batch learns faster: the seconds that each training needs to come to the same loss.

Samples per second say nothing of learning: a larger batch takes fewer steps in the same time. Each seed gives a pair of curves,
loss over seconds of the loop, both for the same time. The goal is the loss that the plain training has come to at its end, but
for a fiftieth of its way: where a loss has long been level, noise alone says when the last of it is reached. What counts is
when each of the two is there for the first time, in a running mean. Noise makes a curve touch the goal early, and small
batches are noisier: the larger one is not flattered. So what cannot be told from the seconds is asked of the losses: one that
has come as low at the end of the same time is not called later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from statistics import mean, stdev

from flatout.base.records import Struct
from flatout.measure.parity import FEWEST_PAIRS, T95

FEWEST_LOSSES = 12
TAIL = 0.2  # of the time: its mean is where a training has come to
HEAD = 0.1
FIRST = 3  # losses: where it began
SPARED = 0.02  # of the way from there
SMOOTHED = 0.1  # of the losses of a curve are in its running mean
LEAST = math.log(1.03)  # a difference within this is not claimed: the steps of a large batch are coarse
ENDED = 0.9  # of the plain training's time: it was over by itself
LEARNED = 3.0  # standard errors of the tail: less is no learning …
FALLEN = 0.01  # … nor is a fall by less than this share: it wanders so far by itself


class Learned(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    UNKNOWN = "unknown"


class LossCurve(Struct, frozen=True, kw_only=True):
    seconds: list[float]
    losses: list[float]  # up to where they are numbers
    broke: bool = False  # it came to something that is no number, and ends there


def curve_of(seconds: Sequence[float], losses: Sequence[float]) -> LossCurve:
    end = next((place for place, loss in enumerate(losses) if not math.isfinite(loss)), None)
    return LossCurve(seconds=list(seconds[:end]), losses=list(losses[:end]), broke=end is not None)


class TimeToLoss(Struct, frozen=True, kw_only=True):
    """The ratio of the plain training's seconds to the changed one's: above one, the changed one is faster."""

    verdict: Learned
    code: str
    pairs: int
    ratio: float | None = None
    lower: float | None = None  # one-sided 95 %, each
    upper: float | None = None
    plain_s: float | None = None  # means
    changed_s: float | None = None
    goal: float | None = None
    steps_ratio: float | None = None  # the changed one's steps in a second to the plain one's
    not_reached: int = 0  # changed trainings that never came there: their time is at least the whole


class _Race(Struct, frozen=True, kw_only=True):
    plain_s: float
    changed_s: float
    goal: float
    reached: bool
    ended_before: bool  # a script that counts epochs has fewer steps of a larger batch
    level: float  # where the changed one has come to at its end, above the goal, in parts of the plain one's way


def judge(pairs: Sequence[tuple[LossCurve, LossCurve]]) -> TimeToLoss:
    """Pairs of curves of one seed, plain first."""
    if any(_broke(plain) for plain, _ in pairs):
        return TimeToLoss(verdict=Learned.UNKNOWN, code="plain-not-finite", pairs=len(pairs))
    if any(_broke(changed) for _, changed in pairs):
        return TimeToLoss(verdict=Learned.SLOWER, code="not-finite", pairs=len(pairs))
    few = any(len(curve.losses) < FEWEST_LOSSES for curve, _ in pairs) or any(len(changed.losses) < 3 for _, changed in pairs)
    if len(pairs) < FEWEST_PAIRS or few:
        return TimeToLoss(verdict=Learned.UNKNOWN, code="too-little", pairs=len(pairs))
    if not all(_learns(plain) for plain, _ in pairs):
        return TimeToLoss(verdict=Learned.UNKNOWN, code="nothing-learned", pairs=len(pairs))
    races = [_race(plain, changed) for plain, changed in pairs]
    logs = [math.log(race.plain_s / race.changed_s) for race in races]
    reach = T95[min(len(logs) - 1, max(T95))] * stdev(logs) / math.sqrt(len(logs))
    verdict, code = _verdict(mean(logs), reach, races)
    return TimeToLoss(
        verdict=verdict,
        code=code,
        pairs=len(races),
        ratio=math.exp(mean(logs)),
        lower=math.exp(mean(logs) - reach),
        upper=math.exp(mean(logs) + reach),
        plain_s=mean(race.plain_s for race in races),
        changed_s=mean(race.changed_s for race in races),
        goal=mean(race.goal for race in races),
        steps_ratio=math.exp(mean(math.log(_pace(changed) / _pace(plain)) for plain, changed in pairs)),
        not_reached=sum(not race.reached for race in races),
    )


def _verdict(middle: float, reach: float, races: Sequence[_Race]) -> tuple[Learned, str]:
    low, high = middle - reach, middle + reach
    missed = sum(not race.reached for race in races)
    if missed == len(races):
        return Learned.SLOWER, "fewer-steps" if all(race.ended_before for race in races) else "never-there"
    if low > LEAST and not missed:
        return Learned.FASTER, "sooner-there"
    if high < -LEAST:
        return Learned.SLOWER, "later-there"
    later = -middle > max(LEAST, reach / T95[min(len(races) - 1, max(T95))])  # by more than its standard error
    if later and not missed and mean(race.level for race in races) <= 0:
        return Learned.UNKNOWN, "as-low-by-then"
    return Learned.UNKNOWN, "rather-later" if later else "too-noisy"


def _learns(curve: LossCurve) -> bool:
    tail = _tail(curve)
    spread = stdev(tail) / math.sqrt(len(tail)) if len(tail) > 1 else 0.0
    head = curve.losses[: max(2, int(HEAD * len(curve.losses)))]
    return mean(head) - mean(tail) > max(LEARNED * spread, FALLEN * abs(mean(head)))


def _race(plain: LossCurve, changed: LossCurve) -> _Race:
    goal = _goal(plain)
    plain_s = _first(plain, goal)
    changed_s = _first(changed, goal)
    return _Race(
        plain_s=plain.seconds[-1] if plain_s is None else plain_s,
        changed_s=max(changed.seconds[-1], plain.seconds[-1]) if changed_s is None else changed_s,
        goal=goal,
        reached=changed_s is not None,
        ended_before=changed.seconds[-1] < ENDED * plain.seconds[-1],
        level=(mean(_tail(changed)) - goal) / max(mean(plain.losses[:FIRST]) - goal, 1e-12),
    )


def _broke(curve: LossCurve) -> bool:
    return curve.broke or not all(map(math.isfinite, curve.losses))


def _pace(curve: LossCurve) -> float:
    return len(curve.losses) / curve.seconds[-1]


def _tail(curve: LossCurve) -> list[float]:
    from_s = (1 - TAIL) * curve.seconds[-1]
    return [loss for second, loss in zip(curve.seconds, curve.losses, strict=True) if second >= from_s]


def _goal(plain: LossCurve) -> float:
    level = mean(_tail(plain))
    return level + SPARED * max(0.0, mean(plain.losses[:FIRST]) - level)


def _first(curve: LossCurve, goal: float) -> float | None:
    """When the running mean is at the goal for the first time."""
    width = max(1, round(SMOOTHED * len(curve.losses)))
    for place in range(width - 1, len(curve.losses)):
        if mean(curve.losses[place - width + 1 : place + 1]) <= goal:
            return max(curve.seconds[place], 1e-6)
    return None
