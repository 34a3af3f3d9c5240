"""How far a search is, and how long it will take: an estimate from what segments took so far."""

from __future__ import annotations

from collections.abc import Callable

from flatout.measure.statistics import PAIRS_AT_LOOK
from flatout.tune.search.arm_order import LOOK_SEGMENTS, children_for, restart_values, segments_for
from flatout.tune.search.compile_order import BUILD_GUESS_S
from flatout.tune.search.compute_knobs import is_compute
from flatout.tune.search.questions_and_answers import BatchGoal, Mode, Offer, Progress
from flatout.tune.search.search_state import FINAL_PAIRS, INPUT_SEGMENTS, Course

TRYING = ("compute", "restart", "build", "input")
ENDING = ("each", "final")


def progress_of(course: Course, finished: bool) -> Progress:
    segments = 0 if finished else course.pending + _later_segments(course)
    seconds = segments * course.hot_s() + (0.0 if finished else _later_extra_s(course))
    return Progress(
        stage=course.stage,
        trying=list(course.trying),
        segments_done=max(0, course.asked - (0 if finished else 1)),
        segments_left=segments,
        spent_s=course.spent_s,
        left_s=max(0.0, min(seconds, course.plan.budget_s - course.spent_s)),
    )


def _untried(course: Course, stage: str) -> list[Offer]:
    kinds: dict[str, Callable[[Offer], bool]] = {
        "compute": lambda offer: is_compute(offer) and not offer.restart and not offer.builds,
        "restart": lambda offer: is_compute(offer) and offer.restart,
        "build": lambda offer: is_compute(offer) and offer.builds,
        "input": lambda offer: not is_compute(offer) and offer.knob != "batch_size",
    }
    tried = {knob for knob, _ in course.decisions}
    return [offer for offer in course.offers() if offer.knob not in tried and kinds[stage](offer)]


def _later(course: Course) -> tuple[str, ...]:
    """Stages that may have untried knobs, without the one at hand; which comes first depends on the class of the loop."""
    return tuple(stage for stage in TRYING if stage != course.stage and course.stage not in ENDING)


def _batch_to_come(course: Course) -> bool:
    tried = any(knob == "batch_size" for knob, _ in course.decisions)
    return course.plan.batch is not BatchGoal.KEEP and not tried and course.stage not in (*ENDING, "batch")


def _later_segments(course: Course) -> int:
    offers = [offer for stage in _later(course) for offer in _untried(course, stage)]
    total = LOOK_SEGMENTS * sum(max(1, len(offer.values)) for offer in offers)
    total += 0 if course.input_matched else INPUT_SEGMENTS
    total += 6 if _batch_to_come(course) else 0
    if course.stage not in ENDING:
        total += 6 * (len(course.whole) + len(offers) // 2)  # of what is still to be tried, about half is kept
    ceilings = 0 if course.compute_mode is Mode.REAL else FINAL_PAIRS
    return total if course.stage == "final" else total + segments_for(FINAL_PAIRS) + ceilings


def _later_extra_s(course: Course) -> float:
    """Children and builds that are still to come."""
    later = _later(course)
    children = 0
    if "restart" in later and _untried(course, "restart"):
        children += children_for(PAIRS_AT_LOOK[0])
    if course.stage != "final" and (restart_values(course.plan, course.whole) or children):
        children += children_for(FINAL_PAIRS)
    if _batch_to_come(course):
        children += 6
    builds = sum(len(offer.values) for offer in _untried(course, "build")) if "build" in later else 0
    return children * (course.start_s + course.standing_build_s / 2) + builds * BUILD_GUESS_S
