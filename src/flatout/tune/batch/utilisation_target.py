"""Which batch size to take when the card is to be busy: the smallest that reaches the wanted utilisation and is nearly as
fast as the fastest. Pure; sizes and memory are the policy's of `size_policy.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flatout.base.records import Missing, Struct
from flatout.tune.batch.size_policy import PLATEAU, BatchPolicy, is_safe, next_size
from flatout.tune.search.questions_and_answers import BatchGoal, BatchProbe

Busy = Mapping[int, float | Missing]  # size -> percent


class Target(Struct, frozen=True, kw_only=True):
    percent: float
    policy: BatchPolicy  # its goal is not read: both are used here


class Taken(Struct, frozen=True, kw_only=True):
    size: int  # 0 where no size ran
    reason: str  # reached, out-of-reach, unknown, nothing-fits
    best_rate: float | Missing


def next_target_size(probes: Sequence[BatchProbe], busy: Busy, target: Target) -> int | None:
    """As long as it pays; and further, as far as memory allows, where it costs nothing and the card is not busy yet."""
    size = next_size(probes, _with_goal(target.policy, BatchGoal.GROW))
    if size is not None or not probes:
        return size
    largest = max((probe for probe in probes if is_safe(probe, target.policy)), key=lambda probe: probe.size, default=None)
    if largest is None or largest not in _fast(probes, target.policy):
        return None
    known = [value for value in busy.values() if not isinstance(value, Missing)]
    if not known or any(value >= target.percent for value in known):
        return None
    return next_size(probes, _with_goal(target.policy, BatchGoal.FIT))


def take(probes: Sequence[BatchProbe], busy: Busy, target: Target) -> Taken:
    fast = _fast(probes, target.policy)
    if not fast:
        return Taken(size=0, reason="nothing-fits", best_rate=Missing("nothing-timed"))
    best = max(probe.rate for probe in fast if isinstance(probe.rate, float))
    told = [(probe, value) for probe in fast if isinstance(value := busy.get(probe.size, Missing("not-reported")), float)]
    reached = [probe for probe, value in told if value >= target.percent]
    reason = "reached" if reached else "out-of-reach" if told else "unknown"
    return Taken(size=(reached or fast)[0].size, reason=reason, best_rate=best)


def _fast(probes: Sequence[BatchProbe], policy: BatchPolicy) -> list[BatchProbe]:
    """Safe and within the plateau of the fastest, the smallest first."""
    safe = [probe for probe in probes if is_safe(probe, policy) and isinstance(probe.rate, float)]
    best = max((probe.rate for probe in safe if isinstance(probe.rate, float)), default=0.0)
    fast = [probe for probe in safe if isinstance(probe.rate, float) and probe.rate >= best * (1 - PLATEAU)]
    return sorted(fast, key=lambda probe: probe.size)


def _with_goal(policy: BatchPolicy, goal: BatchGoal) -> BatchPolicy:
    return BatchPolicy(
        goal=goal,
        start=policy.start,
        largest=policy.largest,
        memory_limit=policy.memory_limit,
        headroom=policy.headroom,
    )
