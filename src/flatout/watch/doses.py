"""Splits the lost time of a slow period among causes that came at the same time, by how each rose and fell. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flatout.base.records import Struct, field

ALIKE = 0.95  # correlation: no data tells the two apart
ROUNDS = 200


class Dose(Struct, frozen=True):
    """One possible cause: how much of it there was in each window (0: as usual)."""

    name: str
    values: list[float]
    evidence: dict[str, Any] = field(default_factory=dict)


def divide(seconds: float, work: Sequence[float], doses: Sequence[Dose], usual: int) -> tuple[list[float], bool]:
    """`seconds` a step in parts, one for each dose, and whether they could be told apart.

    `work`: seconds a step in each window, the first `usual` of them from outside the stretch. Least squares with parts that are
    not negative, one at a time until nothing moves.
    """
    if len(doses) == 1:
        return [seconds], True
    if any(_correlation(one.values, other.values) > ALIKE for i, one in enumerate(doses) for other in doses[i + 1 :]):
        return [seconds / len(doses)] * len(doses), False
    level = math.fsum(work[:usual]) / usual
    rest = [value - level for value in work]
    slopes = [0.0] * len(doses)
    for _ in range(ROUNDS):
        for number, dose in enumerate(doses):
            squares = math.fsum(value * value for value in dose.values)
            towards = math.fsum(value * left for value, left in zip(dose.values, rest, strict=True))
            better = max(0.0, slopes[number] + towards / squares) if squares else 0.0
            moved = better - slopes[number]
            slopes[number] = better
            rest = [left - moved * value for left, value in zip(rest, dose.values, strict=True)]
    inside = [math.fsum(dose.values[usual:]) * slope for dose, slope in zip(doses, slopes, strict=True)]
    whole = math.fsum(inside)
    if whole <= 0:
        return [seconds / len(doses)] * len(doses), False
    return [seconds * part / whole for part in inside], True


def _correlation(one: Sequence[float], other: Sequence[float]) -> float:
    middle, others = math.fsum(one) / len(one), math.fsum(other) / len(other)
    both = math.fsum((a - middle) * (b - others) for a, b in zip(one, other, strict=True))
    spread = math.fsum((a - middle) ** 2 for a in one) * math.fsum((b - others) ** 2 for b in other)
    return both / math.sqrt(spread) if spread > 0 else 0.0
