"""Work that comes back every so many steps, in runs that were ended early: evaluations and checkpoints within an epoch. Pure.

A run that is ended early meets one of them, or two, or none, by chance of where it ends; all that last as long meet the same.
So the steps at which it came tell how often it comes, in the run that saw most of it; what one takes each arm tells for itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flatout.base.records import Struct


class Recurring(Struct, frozen=True, kw_only=True):
    """Of one kind, as one run saw it."""

    count: int
    each_s: float
    first: int  # after so many steps of the run, and …
    last: int
    steps: int  # … of so many

    @property
    def period(self) -> float:
        """Steps from one to the next. Of a single one: as many as before it, or as none came after it."""
        if self.count > 1:
            return (self.last - self.first) / (self.count - 1)
        return float(max(self.last, self.steps - self.last))


def often(seen: Sequence[Recurring]) -> float:
    """How often in a step, by the run that saw most of it."""
    most = max(seen, key=lambda one: (one.count, one.steps), default=None)
    return 1 / most.period if most is not None and most.period >= 1 else 0.0


def price(own: Sequence[Recurring], others: Sequence[Recurring]) -> float:
    """Of one of them: in this arm where it was met there, else in the other."""
    seen = own or others
    return math.fsum(one.each_s for one in seen) / len(seen) if seen else 0.0


def read(told: Sequence[int], before: Sequence[int], steps: int) -> Recurring | None:
    """`told` at the run's end and `before`, when it had settled: what came since tells the price, unless nothing did."""
    (count, spent, first, last), (early, early_spent) = told, before[:2]
    if not count:
        return None
    later = count - early
    each = (spent - early_spent) / later if later > 0 else spent / count
    return Recurring(count=count, each_s=each * 1e-9, first=first, last=last, steps=steps)
