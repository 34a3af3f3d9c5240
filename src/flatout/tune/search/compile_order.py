"""In which order the ways of compiling and recording are tried, and what building is expected to take."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.knobs.catalogue import RECORDED
from flatout.tune.search.baseline import BUSY
from flatout.tune.search.questions_and_answers import Offer
from flatout.tune.search.search_state import Course

BUILD_GUESS_S = 20.0  # of a compile, until one was seen
RECORD_S = 1.0
DARING_S = 15.0  # the same in a hurry: it may well be less, and gives most
GRAPHS = frozenset({"reduce-overhead", RECORDED})  # what they save is launching
SHORT_RUN_S = 120.0  # of all steps: of less a compiler takes much
SHORT_STEP_S = 0.03  # in so little time a step's kernels are mostly small


def in_order(course: Course, values: list[str]) -> list[str]:
    """What cures the loop first. In a short run recording comes before compiling: it takes a second where compiling takes many,
    in the search and in each run."""
    launches = _launches_count(course)
    planned, step_s = course.plan.steps_planned, course.step_s
    short = isinstance(step_s, float) and planned is not None and planned * step_s < SHORT_RUN_S
    recording = course.in_a_hurry and launches and short
    return sorted(values, key=lambda value: ((value in GRAPHS) != launches, recording and value != RECORDED))


def _launches_count(course: Course) -> bool:
    """Whether the host's launching holds the device up: told by the device, or by what was won and lost so far."""
    if course.contended:
        return True
    if not isinstance(course.pace.busy, Missing):
        return course.pace.busy < BUSY or course.pace.keeps_up
    if isinstance(course.step_s, float) and course.step_s < SHORT_STEP_S:
        return True  # the same kernels in graphs: where launches do not count after all, nothing is lost
    codes = {decision.knob: decision.code for decision in course.decisions.values()}
    return codes.get("precision") == "slower" or codes.get("fused_optimizer") == "faster"


def build_guess_s(course: Course, offer: Offer, value: str) -> float:
    """As long as the longest so far."""
    if not offer.builds:
        return 0.0
    if value == RECORDED:
        return RECORD_S
    return course.longest_build_s or (DARING_S if course.in_a_hurry else BUILD_GUESS_S)
