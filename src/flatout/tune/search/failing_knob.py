"""What was kept no longer gets through a segment: which knob is it?"""

from __future__ import annotations

from flatout.tune.search.comparison import Question, Trial, hold
from flatout.tune.search.questions_and_answers import Mode, Status
from flatout.tune.search.search_state import Course, Steps
from flatout.tune.search.stop_reasons import StandingBrokenError


def held(course: Course, question: Question) -> Steps[Trial | None]:
    """A comparison; None where what was kept broke in it, and the guilty knob is out now."""
    try:
        return (yield from hold(course, question))
    except StandingBrokenError as broken:
        course.broke = broken.status
        if not (yield from recover(course, broken.status, question.mode)):
            raise
    return None


def recover(course: Course, status: Status, mode: Mode) -> Steps[bool]:
    """Takes back the knob without which the whole runs again; False where even the plain script does not."""
    while course.whole:
        for knob in suspects(course, status):
            without = {name: value for name, value in course.whole.items() if name != knob}
            result = yield from course.ask(without, mode, fresh=True)
            if not result.fault and isinstance(result.rate, float):
                _take_back(course, knob, status)
                return True
            if not without:
                return False
        # More than one is guilty, or it needs several: the latest goes, and the question is asked again.
        _take_back(course, suspects(course, status)[0], status)
    return False


def suspects(course: Course, status: Status) -> list[str]:
    """The latest first; but a larger batch is what memory went to, whatever was kept after it."""
    latest = list(reversed(course.order))
    return sorted(latest, key=lambda knob: not (status is Status.OOM and knob == "batch_size"))


def _take_back(course: Course, knob: str, status: Status) -> None:
    course.decide(course.offer(knob), course.whole[knob], "fault-later", {"status": status.value})
    course.remove(knob)
