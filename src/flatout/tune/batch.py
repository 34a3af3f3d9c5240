"""Which batch size to ask for next, and which to take: a policy over probes, without a machine.

Sizes double from the script's own; a line through the two largest that fit says where the memory ends, and is never
followed further than one doubling (two small probes predicted 1589 where 397 fitted and 794 did not). A size counts as safe
only where it ran with head-room to spare and the allocator did not have to try again.
"""

from __future__ import annotations

from collections.abc import Sequence

from flatout.base.records import Missing, Struct
from flatout.tune.model import BatchGoal

NEAR = 0.03  # of the largest size: closer is not worth a child
PLATEAU = 0.02  # a doubling that gives less has reached it
GRAIN = 8  # sizes from GRAINED on are whole multiples, as tensor cores like them
GRAINED = 160


class BatchProbe(Struct, frozen=True, kw_only=True):
    size: int
    ran: bool
    peak: int | Missing = Missing("not-reported")
    retries: int = 0
    rate: float | Missing = Missing("not-measured")


class BatchPolicy(Struct, frozen=True, kw_only=True):
    goal: BatchGoal
    start: int
    largest: int
    memory_limit: int | None
    headroom: float

    @property
    def memory_goal(self) -> float | None:
        return None if self.memory_limit is None else self.memory_limit * (1 - self.headroom)


def is_safe(probe: BatchProbe, policy: BatchPolicy) -> bool:
    if not probe.ran or probe.retries:
        return False
    goal = policy.memory_goal
    return goal is None or isinstance(probe.peak, Missing) or probe.peak <= goal


def next_size(probes: Sequence[BatchProbe], policy: BatchPolicy) -> int | None:
    """The size to probe next, or None where enough is known."""
    if not probes:
        return policy.start
    safe = sorted((probe for probe in probes if is_safe(probe, policy)), key=lambda probe: probe.size)
    unsafe = min((probe.size for probe in probes if not is_safe(probe, policy)), default=None)
    if not safe:
        smaller = min(probe.size for probe in probes) // 2
        return smaller if smaller >= 1 else None
    if policy.goal is BatchGoal.GROW and _levelled(safe):
        return None
    size = _towards_the_end(safe, unsafe, policy)
    known = {probe.size for probe in probes}
    return size if size is not None and size not in known and size > safe[-1].size else None


def _towards_the_end(safe: Sequence[BatchProbe], unsafe: int | None, policy: BatchPolicy) -> int | None:
    low = safe[-1].size
    end = predicted_end(safe, policy)
    if unsafe is None:
        size = min(2 * low, policy.largest)
        if end is not None and end < size:
            size = _grained(end)
        return size if size > low * (1 + NEAR) or size == policy.largest else None
    if unsafe <= low * (1 + NEAR) or unsafe - low <= 1:
        return None
    if end is not None and end < unsafe:
        # The line has seen both sides of the end: where it says that this is it, it is.
        return _grained(end) if end > low * (1 + NEAR) else None
    return _grained((low + unsafe) // 2)


def predicted_end(safe: Sequence[BatchProbe], policy: BatchPolicy) -> int | None:
    """The size at which the line through the two largest safe probes reaches the memory that may be used."""
    goal = policy.memory_goal
    told = [(probe.size, probe.peak) for probe in safe if isinstance(probe.peak, int)]
    if goal is None or len(told) < 2:
        return None
    (size_a, peak_a), (size_b, peak_b) = told[-2], told[-1]
    slope = (peak_b - peak_a) / (size_b - size_a)
    if slope <= 0:
        return None  # the allocator's reserve hides the growth
    return int(size_b + (goal - peak_b) / slope)


def chosen(probes: Sequence[BatchProbe], policy: BatchPolicy) -> BatchProbe | None:
    """The probe to take: the largest safe one, or the smallest within the plateau of the fastest."""
    safe = sorted((probe for probe in probes if is_safe(probe, policy)), key=lambda probe: probe.size)
    if not safe:
        return None
    if policy.goal is BatchGoal.FIT:
        return safe[-1]
    rates = [probe.rate for probe in safe if isinstance(probe.rate, float)]
    best = max(rates, default=0.0)
    return next((p for p in safe if isinstance(p.rate, float) and p.rate >= best * (1 - PLATEAU)), safe[0])


def safe_size(size: int, policy: BatchPolicy) -> int:
    """Where nobody reports memory, head-room is left in the size itself, because no line can tell it."""
    if policy.memory_limit is not None or size <= policy.start:
        return size
    return max(policy.start, int(size * (1 - policy.headroom)))


def smaller_size(size: int, policy: BatchPolicy) -> int:
    """After a verification failed in the real loop, whose batches vary."""
    return max(policy.start, _grained(int(size * 0.9)))


def _levelled(safe: Sequence[BatchProbe]) -> bool:
    """Twice in a row a larger batch gave next to nothing: once may be noise."""
    rates = [probe.rate for probe in safe if isinstance(probe.rate, float)]
    return len(rates) >= 3 and max(rates[-2:]) < rates[-3] * (1 + PLATEAU)


def _grained(size: int) -> int:
    return size - size % GRAIN if size >= GRAINED else size
