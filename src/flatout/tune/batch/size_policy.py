"""Which batch size to ask for next, and which to take: a policy over probes, without a machine.

Sizes double from the script's own; a line through the two largest that fit says where the memory ends, and is never
followed further than one doubling (two small probes predicted 1589 where 397 fitted and 794 did not). A size counts as safe
only where it ran with head-room to spare and the allocator did not have to try again.
"""

from __future__ import annotations

from collections.abc import Sequence

from flatout.base.records import Missing, Struct
from flatout.tune.search.questions_and_answers import BatchGoal, BatchProbe

NEAR = 0.03  # of the largest size: closer is not worth a child …
NEAR_HOT = 0.012  # … but a segment of four steps
FORESEEN = 1.5  # times the largest probe: so far the line is followed without another
NEAR_GROWING = 0.25  # between two doublings there is little speed to be had
SHRINKS = (0.9, 0.7, 0.5)  # a size that died in the real loop: by how much is not told, and a validation may take twice as much
WORTH_A_CHILD = 0.05
PLATEAU = 0.02  # what is nearer to the best than this is as good
STEPS_COUNT = 0.12  # a doubling halves the steps of each second: it must give 9 % more samples to be worth that
GRAIN = 8  # sizes from GRAINED on are whole multiples, as tensor cores like them
GRAINED = 160


class BatchPolicy(Struct, frozen=True, kw_only=True):
    goal: BatchGoal
    start: int
    largest: int
    memory_limit: int | None
    headroom: float
    near: float = NEAR
    dear: bool = False  # probes cost more than they tell: a size that the line foresees is proved at once

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
    if (below := _for_the_slope(safe, unsafe, policy)) is not None:
        return below
    if foreseen(probes, policy) is not None:
        return None
    size = _towards_the_end(safe, unsafe, policy, _near(probes, policy))
    known = {probe.size for probe in probes}
    return size if size is not None and size not in known and size > safe[-1].size else None


def _near(probes: Sequence[BatchProbe], policy: BatchPolicy) -> float:
    if policy.goal is BatchGoal.GROW and any(not is_safe(probe, policy) for probe in probes):
        return NEAR_GROWING
    return policy.near if all(probe.ran for probe in probes) else max(policy.near, NEAR)  # what dies costs a child


def _for_the_slope(safe: Sequence[BatchProbe], unsafe: int | None, policy: BatchPolicy) -> int | None:
    """Half the first size, where its double may be too much: two that fit tell where memory ends, and cost no child."""
    goal, only = policy.memory_goal, safe[0]
    if len(safe) > 1 or unsafe is not None or goal is None or not isinstance(only.peak, int) or only.size < 2:
        return None
    return only.size // 2 if 2 * only.peak > goal else None


def _towards_the_end(safe: Sequence[BatchProbe], unsafe: int | None, policy: BatchPolicy, near: float) -> int | None:
    low = safe[-1].size
    end = predicted_end(safe, policy)
    if unsafe is None:
        size = min(2 * low, policy.largest)
        if end is not None and end < size:
            return _up_to(end, low, near)
        return size if size > low * (1 + near) or size == policy.largest else None
    if unsafe <= low * (1 + near) or unsafe - low <= 1:
        return None
    if end is not None and end < unsafe:
        # The line has seen both sides of the end: where it says that this is it, it is.
        return _up_to(end, low, near)
    return _grained((low + unsafe) // 2)


def _up_to(end: int, low: int, near: float) -> int | None:
    """The end, where it is far enough to be worth a probe: by itself, since graining takes some of it."""
    return _grained(end) if end > low * (1 + near) and _grained(end) > low else None


def foreseen(probes: Sequence[BatchProbe], policy: BatchPolicy) -> int | None:
    """The end of the line, where it is near enough to be proved without a probe, and a probe is dear."""
    if not policy.dear or policy.goal is not BatchGoal.FIT or not all(is_safe(probe, policy) for probe in probes):
        return None
    safe = sorted(probes, key=lambda probe: probe.size)
    end = predicted_end(safe, policy)
    if end is None or not safe[-1].size < end <= min(FORESEEN * safe[-1].size, policy.largest):
        return None
    return _grained(end) if _grained(end) > safe[-1].size else None


def predicted_end(safe: Sequence[BatchProbe], policy: BatchPolicy) -> int | None:
    """The size at which the line through the two largest safe probes reaches the memory that may be used."""
    goal, slope = policy.memory_goal, memory_slope(safe)
    if goal is None or slope is None:
        return None
    last = [probe for probe in safe if isinstance(probe.peak, int)][-1]
    assert isinstance(last.peak, int)
    return int(last.size + (goal - last.peak) / slope)


def memory_slope(safe: Sequence[BatchProbe]) -> float | None:
    """Bytes that a sample more reserves, from the two largest; None where nothing can be said.

    What tensors held grows evenly where the allocator's reserve grows in pieces: its line, at the rate of the last reserve.
    """
    told = [probe for probe in safe if isinstance(probe.peak, int)][-2:]
    if len(told) < 2:
        return None
    (low, high), between = told, told[1].size - told[0].size
    if isinstance(low.allocated, int) and isinstance(high.allocated, int) and isinstance(high.peak, int) and high.allocated:
        slope = (high.allocated - low.allocated) / between * (high.peak / high.allocated)
    else:
        assert isinstance(low.peak, int)
        assert isinstance(high.peak, int)
        slope = (high.peak - low.peak) / between
    return slope if slope > 0 else None  # the allocator's reserve hides the growth


def chosen(probes: Sequence[BatchProbe], policy: BatchPolicy) -> BatchProbe | None:
    """The probe to take: the largest safe one, or where it is to learn fast, the smallest within the plateau of the best."""
    safe = sorted((probe for probe in probes if is_safe(probe, policy)), key=lambda probe: probe.size)
    if not safe:
        return None
    if policy.goal is BatchGoal.FIT:
        return safe[-1]
    best = max(map(_worth, safe))
    return next((probe for probe in safe if _worth(probe) >= best * (1 - PLATEAU)), safe[0])


def _worth(probe: BatchProbe) -> float:
    """Samples a second, less what it costs to have fewer steps: of two that are about as fast the smaller learns sooner."""
    return probe.rate / probe.size**STEPS_COUNT if isinstance(probe.rate, float) else 0.0


def safe_size(size: int, policy: BatchPolicy, probes: Sequence[BatchProbe] = ()) -> int:
    """Where memory does not tell why a size failed, head-room is left in the size itself."""
    if size <= policy.start:
        return size
    if policy.memory_limit is None:
        return max(policy.start, int(size * (1 - policy.headroom)))
    end = predicted_end(sorted((p for p in probes if is_safe(p, policy)), key=lambda p: p.size), policy)
    unforeseen = [p.size for p in probes if not p.ran and (end is None or p.size <= end)]
    return max(policy.start, min([size, *(int(failed * (1 - policy.headroom)) for failed in unforeseen)]))


def smaller_size(proof: BatchProbe, policy: BatchPolicy, slope: float | None, failed: int = 1) -> int:
    """After a verification failed in the real loop, whose batches vary: by what it was too much, or by ever more."""
    goal, size = policy.memory_goal, int(proof.size * SHRINKS[min(failed, len(SHRINKS)) - 1])
    if proof.ran and not proof.retries and goal is not None and isinstance(proof.peak, int) and slope is not None:
        size = max(size, min(proof.size - 1, int(proof.size - 1.05 * (proof.peak - goal) / slope)))
    return max(policy.start, _grained(size))


def between(proved: int, died: Sequence[int]) -> int | None:
    """Half way from a size that held in the real loop to the smallest that did not, where a child is worth it."""
    size = _grained((proved + min(died)) // 2)
    return size if size > proved * (1 + WORTH_A_CHILD) else None


def larger_size(proof: BatchProbe, probes: Sequence[BatchProbe], policy: BatchPolicy, slope: float | None) -> int | None:
    """Where the real loop left more room than the probes said: the size to verify once more, if it is worth a child.

    Batches that were put together leave more behind than the script's own: one that ran, with too much reserved, is no end.
    """
    goal = policy.memory_goal
    if goal is None or slope is None or not isinstance(proof.peak, int) or not is_safe(proof, policy):
        return None
    failed = [
        probe.size for probe in probes if not is_safe(probe, policy) and not (probe.hot and probe.ran and not probe.retries)
    ]
    unsafe = min(failed, default=policy.largest + 1)
    size = _grained(min(unsafe - 1, int(proof.size + 0.98 * (goal - proof.peak) / slope), 2 * proof.size))
    return size if size > proof.size * (1 + NEAR) else None


def _levelled(safe: Sequence[BatchProbe]) -> bool:
    """Twice in a row a larger batch gave too little: once may be noise."""
    worth = [_worth(probe) for probe in safe if isinstance(probe.rate, float)]
    return len(worth) >= 3 and max(worth[-2:]) < worth[-3]


def _grained(size: int) -> int:
    return size - size % GRAIN if size >= GRAINED else size
