"""Whether a changed training still learns the same: paired loss curves, judged by one-sided non-inferiority.

Each seed gives one pair, plain and changed. What is compared is the mean loss of the later half, less by more than a
margin would be worse. The margin is a share of what the plain training has learned in these steps, and never less than
what another seed would change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from statistics import mean, stdev

from flatout.base.records import Struct
from flatout.measure.one_batch import OneBatch

SHARE_OF_PROGRESS = 0.05
FEWEST_PAIRS = 3
FEWEST_STEPS = 20
T95 = {2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 6: 1.943, 7: 1.895}  # one-sided, by degrees of freedom


class Verdict(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Parity(Struct, frozen=True, kw_only=True):
    verdict: Verdict
    code: str  # why
    pairs: int
    steps: int = 0
    difference: float | None = None  # of the later half's mean loss, changed less plain
    upper: float | None = None  # one-sided 95 %
    margin: float | None = None
    batch: OneBatch | None = None  # what both make of the same batch with the same weights


def judge(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Parity:
    """Pairs of curves, plain first."""
    steps = min((min(len(plain), len(changed)) for plain, changed in pairs), default=0)
    if any(not all(map(math.isfinite, plain)) for plain, _ in pairs):
        return Parity(verdict=Verdict.UNKNOWN, code="plain-not-finite", pairs=len(pairs), steps=steps)
    if any(not all(map(math.isfinite, changed)) for _, changed in pairs):
        return Parity(verdict=Verdict.FAIL, code="not-finite", pairs=len(pairs), steps=steps)
    if len(pairs) < FEWEST_PAIRS or steps < FEWEST_STEPS:
        return Parity(verdict=Verdict.UNKNOWN, code="too-little", pairs=len(pairs), steps=steps)
    late = [(_late(plain, steps), _late(changed, steps)) for plain, changed in pairs]
    differences = [changed - plain for plain, changed in late]
    difference = mean(differences)
    t = T95[min(len(pairs) - 1, max(T95))]
    reach = t * stdev(differences) / math.sqrt(len(pairs))
    margin = _margin([plain for plain, _ in pairs], [plain for plain, _ in late], steps)
    if difference + reach <= margin:
        verdict, code = Verdict.PASS, "not-worse"
    elif difference - reach > margin:
        verdict, code = Verdict.FAIL, "worse"
    else:
        verdict, code = Verdict.UNKNOWN, "too-noisy"
    return Parity(
        verdict=verdict,
        code=code,
        pairs=len(pairs),
        steps=steps,
        difference=difference,
        upper=difference + reach,
        margin=margin,
    )


def _late(curve: Sequence[float], steps: int) -> float:
    return mean(curve[steps // 2 : steps])


def _margin(curves: Sequence[Sequence[float]], late: Sequence[float], steps: int) -> float:
    first = mean(mean(curve[: max(1, steps // 10)]) for curve in curves)
    learned = abs(first - mean(late))
    return max(SHARE_OF_PROGRESS * learned, stdev(late))
