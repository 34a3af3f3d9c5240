"""What a search for the batch size costs: steps grow with the batch, and what is found has still to be proved.

A size is only probed where its proof can be paid as well, so that no budget ends with a size that nobody verified.
"""

from __future__ import annotations

from collections.abc import Sequence

from flatout.tune.search.arm_order import Shape
from flatout.tune.search.questions_and_answers import BatchGoal, BatchProbe, Mode
from flatout.tune.search.search_state import FINAL_PAIRS, Course

WARM = 2  # steps: a loop that fetches ahead still has a batch of the old size
BRIEF_STEPS = 2  # of a probe for memory, which shows in the first
RATED_STEPS = 3  # of a probe for speed, at least
PAIRED_SEGMENTS = 4  # two plain pairs
PROOF_STEPS, PROOF_LONGER = 4, 2.0
AFTER_THE_TURN = 5  # steps, and what a validation of a few batches takes
FIRST_STEPS = 4  # of a child, before it can be asked: as long as those that follow
SETTLING_S = 0.3  # of a segment, beside its steps
BRIEF = 0.1  # of the usual length
ROOM = 1.5  # a segment may take so much longer than foreseen


def room_s(course: Course) -> float:
    """Of the budget: what was asked for by name comes before what is kept back for other things."""
    return course.plan.budget_s - course.spent_s


def step_s(course: Course, probes: Sequence[BatchProbe], size: int, mode: Mode) -> float:
    """What a step of so many samples takes at the best rate that was seen: larger batches are seldom slower per sample, and
    what others do on the machine only ever makes a few steps look slow."""
    real, replayed = course.ceilings.real, course.ceilings.with_copy
    seen = [real] if mode is Mode.REAL else [real, replayed, *(probe.rate for probe in probes)]
    known = [rate for rate in seen if isinstance(rate, float)]
    return size * _per_unit(course) / max(known) if known else 0.0


def _per_unit(course: Course) -> float:
    """Samples of a step for one of the argument's units: it may count per device, or a step hold several batches."""
    own, samples = course.plan.batch_size, course.samples_per_step
    return samples / own if own and samples else 1.0


def probe_shape(course: Course, goal: BatchGoal, size: int | None, step: float) -> Shape:
    """For memory a few steps; for speed as many as the usual segment has, or fewer where they take long."""
    if goal is BatchGoal.FIT:
        limit = ROOM * _brief_s(step)
        return Shape(batch=size, longer=BRIEF, warm=WARM, steps=BRIEF_STEPS, limit_s=limit, bounded=True)
    steps = RATED_STEPS if step * RATED_STEPS >= course.plan.timed_s else None
    return Shape(batch=size, warm=WARM, steps=steps, limit_s=ROOM * _rated_s(course, step), bounded=True)


def probe_s(course: Course, goal: BatchGoal, step: float, children: int) -> float:
    return (_brief_s(step) if goal is BatchGoal.FIT else _rated_s(course, step)) + _children_s(course, children, step)


def _brief_s(step: float) -> float:
    return SETTLING_S + (WARM + BRIEF_STEPS) * step


def _rated_s(course: Course, step: float) -> float:
    return SETTLING_S + WARM * step + max(course.plan.timed_s, RATED_STEPS * step)


def _children_s(course: Course, children: int, step: float = 0.0) -> float:
    own = course.step_s if isinstance(course.step_s, float) else 0.0  # of these a start as it was seen has its own
    return children * (course.start_s + course.standing_build_s + FIRST_STEPS * max(0.0, step - own))


def proof_shape(course: Course, step: float) -> Shape:
    steps = PROOF_STEPS if step * PROOF_STEPS >= course.plan.timed_s else 2 * PROOF_STEPS
    limit = max(ROOM * _proof_s(course, step), room_s(course) / 2)
    return Shape(longer=PROOF_LONGER, through_epoch=True, warm=WARM, steps=steps, limit_s=limit, bounded=True)


def proof_s(course: Course, step: float) -> float:
    return _children_s(course, 1, step) + _proof_s(course, step)


def _proof_s(course: Course, step: float) -> float:
    timed = max(2 * course.plan.timed_s, PROOF_STEPS * step)
    return SETTLING_S + (WARM + AFTER_THE_TURN) * step + timed


def kept_back_s(course: Course, goal: BatchGoal, step: float, hot: bool) -> float:
    """What must follow on the probes: the proof; and for the fastest batch its comparison."""
    return proof_s(course, step) + (comparison_s(course, step, hot) if goal is BatchGoal.GROW else 0.0)


def comparison_s(course: Course, step: float, hot: bool) -> float:
    each = _rated_s(course, step) + course.hot_s(course.compute_mode)
    return PAIRED_SEGMENTS / 2 * each + (0.0 if hot else _children_s(course, PAIRED_SEGMENTS // 2 + 1))


def last_pairs(course: Course, size: int) -> int:
    """Pairs of the last comparison that the rest of the budget pays: each costs a child, and steps of a large batch."""
    step = step_s(course, [], size, Mode.REAL)
    child = course.start_s + course.standing_build_s / 2  # of two that follow, one is the plain script's
    each = child + FIRST_STEPS * step / 2 + course.hot_s() + max(course.hot_s(), _rated_s(course, step))
    return max(0, min(FINAL_PAIRS, int((room_s(course) - _children_s(course, 1)) / each)))


def last_shape(course: Course, size: int) -> Shape:
    step = step_s(course, [], size, Mode.REAL)
    return Shape(warm=WARM, limit_s=ROOM * max(course.hot_s(), _rated_s(course, step)), bounded=True)
