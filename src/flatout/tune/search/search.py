"""The search as a function of its plan and the results so far: `Search(plan).next(results)` is the next segment, or the end.

It holds no clock and no files. The same results give the same next segment, so a journal is all that a resumed search needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flatout.base.errors import RecordError
from flatout.base.records import Missing, replace
from flatout.measure.statistics import FEWEST_PAIRS, Answer, Comparison, plainly_faster
from flatout.tune.batch.command_line import BatchLine
from flatout.tune.batch.growth import leave_if_idle
from flatout.tune.batch.size_search import batch_size
from flatout.tune.search.baseline import baseline, input_first, look
from flatout.tune.search.comparison import Trial
from flatout.tune.search.compute_knobs import compute_knobs, partners
from flatout.tune.search.final_stage import (
    drop_each_once,
    keep_what_seems_faster,
    last_comparison,
    revive,
    spare_time,
    take_all_back,
    what_was_left_open,
)
from flatout.tune.search.input_knobs import (
    aid_compute,
    input_is_the_wall,
    input_knobs,
    skip_behind_the_wall,
    workers_at_last,
    workers_first,
)
from flatout.tune.search.knob_verdict import is_settled, unapplied
from flatout.tune.search.questions_and_answers import (
    BatchGoal,
    BatchStory,
    Decision,
    Ending,
    Finished,
    Mode,
    Offer,
    Params,
    Plan,
    Progress,
    Segment,
    SegmentResult,
    Values,
)
from flatout.tune.search.search_state import FEWEST_SEGMENTS, FINAL_PAIRS, Course, Steps
from flatout.tune.search.stop_reasons import BudgetSpentError, StandingBrokenError, TooShortError
from flatout.tune.search.time_left import progress_of

COMPARED = 2  # rounds of the plain loop and one setting: fewer show nothing

Way = Callable[[Course], Steps[Finished]]

WORTH_HAVING = 0.05


class Search:
    """Keeps its place between calls; given other results than before, it begins again from the plan."""

    def __init__(self, plan: Plan, way: Way | None = None) -> None:
        """`way` leads from the first segment to the end; without one it is the whole search."""
        self._plan = plan
        self._way = way or _whole_course
        self._begin()

    def _begin(self) -> None:
        self._course = Course(self._plan)
        self._steps = self._way(self._course)
        self._taken: list[SegmentResult] = []
        self._now: Segment | Finished = next(self._steps)

    def next(self, results: Sequence[SegmentResult]) -> Segment | Finished:
        """What to do after these results, all from the beginning in their order."""
        if list(results[: len(self._taken)]) != self._taken:
            self._begin()
        for result in results[len(self._taken) :]:
            if isinstance(self._now, Finished):
                break
            if result.id != self._now.id:
                detail = f"a result of segment {result.id} where {self._now.id} was asked for"
                raise RecordError("error.record-damaged", source="journal", detail=detail)
            self._taken.append(result)
            try:
                self._now = self._steps.send(result)
            except StopIteration as end:
                self._now = end.value
        return self._now

    @property
    def plan(self) -> Plan:
        return self._plan

    @property
    def decisions(self) -> list[Decision]:
        return list(self._course.decisions.values())

    @property
    def whole(self) -> Values:
        return dict(self._course.whole)

    def progress(self) -> Progress:
        return progress_of(self._course, isinstance(self._now, Finished))


def _whole_course(course: Course) -> Steps[Finished]:
    return (yield from ended(course, _improve))


def ended(course: Course, improve: Callable[[Course], Steps[None]]) -> Steps[Finished]:
    """The plain speed, what improves it, and what the whole is worth."""
    try:
        yield from baseline(course)
        yield from improve(course)
        trial = yield from last_comparison(course)
    except StandingBrokenError as broken:
        return _finish(course, None, Ending.BASELINE_FAILS, "fault", {"status": broken.status.value})
    except TooShortError:
        return _finish(course, None, Ending.TOO_SHORT)
    except BudgetSpentError:
        _leave_the_rest_open(course)
        trial = None
    return _conclude(course, trial)


def _leave_the_rest_open(course: Course) -> None:
    for offer in course.offers():
        for value in offer.values or ["more"]:
            if not course.tried(offer.knob, value) and offer.knob not in course.whole and offer.knob != "batch_size":
                course.no_time(offer, value, course.cost_s(FEWEST_SEGMENTS))


def _improve(course: Course) -> Steps[None]:
    _decide_without_a_trial(course)
    if course.fits_only:
        yield from batch_size(course)
        return
    if input_first(course):
        course.input_matched = True  # for now: nothing is kept back from the stage itself
        yield from workers_first(course)
        course.wall = input_is_the_wall(course)
        if course.wall:
            yield from _behind_the_wall(course)
            return
        course.input_matched = False
    yield from aid_compute(course)
    yield from compute_knobs(course)
    sized_for = dict(course.whole)
    if (yield from revive(course)):
        yield from revive(course)
    yield from partners(course)
    if course.whole != sized_for and "batch_size" in course.whole and course.plan.batch is BatchGoal.FIT:
        yield from batch_size(course)  # what came since may need less memory, or more
    course.aid = {}
    course.demand_may_grow = False
    yield from _match_input(course)
    if (yield from spare_time(course)):
        yield from _match_input(course)
    yield from leave_if_idle(course)
    yield from drop_each_once(course)
    yield from workers_at_last(course)
    yield from what_was_left_open(course)
    if course.plan.whole_runs_follow:
        keep_what_seems_faster(course)


def foreseen(plan: Plan) -> tuple[list[Offer], list[Decision]]:
    """What would be tried, with the values that are left; and what would not, and why."""
    course = Course(plan)
    _decide_without_a_trial(course)
    left = [replace(one, values=[v for v in one.values if not course.tried(one.knob, v)]) for one in course.offers()]
    all_told = {decision.knob for decision in course.decisions.values()}
    return [one for one in left if one.values or one.knob not in all_told], list(course.decisions.values())


def fewest_s(plan: Plan) -> float:
    """What a search takes at least: the plain loop, and one setting beside it."""
    return (1 + 2 * COMPARED) * Course(plan).hot_s()


def _decide_without_a_trial(course: Course) -> None:
    """What the user left out, and what the first look has told."""
    for offer in course.plan.offers:
        code = course.why_not(offer)
        if code is None:
            for value in [value for value in offer.values if value in offer.foretold]:
                unapplied(course, offer, value, offer.foretold[value])
        elif not (offer.knob == "batch_size" and code == "not-allowed"):
            params: Params = {"allowed": course.plan.allow.value} if code == "not-allowed" else {}
            for value in offer.values:
                course.decide(offer, value, code, params)


def _behind_the_wall(course: Course) -> Steps[None]:
    """Nothing makes it faster but the input side; a batch that was asked for, or without which it does not start, is found."""
    if course.plan.batch is BatchGoal.FIT or course.plan.batch_too_large is not None:
        yield from batch_size(course)
    skip_behind_the_wall(course)
    course.demand_may_grow = False
    yield from _match_input(course)
    yield from drop_each_once(course)


def _match_input(course: Course) -> Steps[None]:
    """The input side against the demand as it is now."""
    course.stage, course.input_matched = "input", True
    if course.plan.has_loader and course.left_s() > course.cost_s(5):
        yield from look(course)
    yield from input_knobs(course)


def _conclude(course: Course, trial: Trial | None) -> Finished:
    """Of a script whose own batch is too large some batch must be in the profile: one that was proved, or there was no time to
    prove it, the first that started. Not one that is known to die."""
    ending = _judged(course, trial)
    plan = course.plan
    if plan.batch_too_large is not None and "batch_size" not in course.whole:
        if plan.batch_size in course.died:
            return _finish(course, trial, Ending.NONE_HOLDS)
        course.keep("batch_size", str(plan.batch_size))
        ending = ending if ending is Ending.TUNED else Ending.SMALLER
    return _finish(course, trial, ending)


def _judged(course: Course, trial: Trial | None) -> Ending:
    settled = all(is_settled(decision) for decision in course.decisions.values())
    nothing = Ending.FLAT_OUT if settled else Ending.NOTHING_SHOWN
    if trial is None:
        # There was no time to compare the whole: what is in it was judged piece by piece, and no figure is claimed for all.
        return Ending.TUNED if course.whole else nothing
    found = trial.comparison
    shown = (found is not None and found.answer is Answer.FASTER) or _all_agree(course, trial)
    if not shown and not _asked_for(course, found):
        unclear = found is None or found.answer is Answer.UNKNOWN or _could_be_faster(found)
        if unclear and course.plan.whole_runs_follow and found is not None and _seems_worth_having(found):
            course.unpaid = set(course.whole)
            return Ending.TUNED
        take_all_back(course, trial, unclear)
        return Ending.NOTHING_SHOWN if unclear else nothing
    return Ending.TUNED


def _asked_for(course: Course, found: Comparison | None) -> bool:
    """A batch that was asked for stays: the largest whatever its speed, the fastest unless the figures deny it."""
    if "batch_size" not in course.whole:
        return False
    wanted = course.plan.batch is BatchGoal.FIT or course.plan.batch_too_large is not None or bool(course.died)
    return wanted or found is None or found.answer is Answer.UNKNOWN


def _all_agree(course: Course, trial: Trial) -> bool:
    """On a restless machine an interval is long; but where each of so many pairs is faster, chance has said so in one of 32.
    Where the budget ended before there could be an interval, two plainly faster pairs leave standing what was shown before."""
    if len(trial.pairs) >= FINAL_PAIRS:
        return all(pair.b > (1 + WORTH_HAVING) * pair.a for pair in trial.pairs)
    return len(trial.pairs) < FEWEST_PAIRS and plainly_faster(trial.pairs, course.noise.of(Mode.REAL))


def _seems_worth_having(found: Comparison) -> bool:
    """Not shown here; the whole runs that follow compare more."""
    return isinstance(found.ratio, float) and found.ratio > 1 + WORTH_HAVING


def _could_be_faster(found: Comparison) -> bool:
    """A machine so restless that a gain worth having cannot be told from none: that is no "flat out"."""
    return isinstance(found.upper, float) and found.upper > 1 + WORTH_HAVING


def _finish(course: Course, trial: Trial | None, ending: Ending, code: str = "", params: Params | None = None) -> Finished:
    none = Missing("not-measured")
    found = trial.comparison if trial is not None else None
    tuned = ending is Ending.TUNED
    bounded = found is not None and isinstance(found.lower, float)  # a gain of the whole without an interval is no figure
    if not code and course.wall:
        code = "input-is-the-wall"
    return Finished(
        ending=ending,
        profile=dict(course.whole) if tuned or ending is Ending.SMALLER else {},
        decisions=list(course.decisions.values()),
        speedup=found.ratio if found is not None and bounded and tuned else none,
        lower=found.lower if found is not None and tuned else none,
        upper=found.upper if found is not None and tuned else none,
        baseline=_mean(trial.rates_a) if trial is not None else course.ceilings.real,
        final=_mean(trial.rates_b) if trial is not None and tuned else none,
        power_before=_mean(trial.power_a, "not-reported") if trial is not None else Missing("not-reported"),
        power_after=_mean(trial.power_b, "not-reported") if trial is not None and tuned else Missing("not-reported"),
        working_before=_mean(trial.working_a, "not-reported") if trial is not None else Missing("not-reported"),
        working_after=_mean(trial.working_b, "not-reported") if trial is not None and tuned else Missing("not-reported"),
        ceilings=course.ceilings,
        bound_before=course.bound_before,
        bound_after=course.bound,
        noise=course.noise.first(),
        drift=course.worst_drift,
        throttled=course.throttled,
        spent_s=course.spent_s,
        raced_s=course.raced_s,
        unpaid=sorted(course.unpaid & set(course.whole)),
        build_s={knob: seconds for knob, seconds in course.build_s.items() if knob in course.whole},
        segments=course.asked,
        code=code,
        params=params or {},
        batch=_batch(course, tuned or ending is Ending.SMALLER),
        reached=course.reached if tuned else None,
    )


def _batch(course: Course, tuned: bool) -> BatchStory | None:
    if course.batch is None:
        return None
    course.batch = replace(course.batch, died=list(course.died))
    value = course.whole.get("batch_size") if tuned else None
    if value is None:
        return replace(course.batch, size=course.batch.begun or course.batch.own)
    size, line = int(value), course.plan.batch_line
    if line is None:
        return replace(course.batch, size=size)
    rate = line.rate_at(size)
    return replace(
        course.batch,
        size=size,
        road=line.road.value,
        flag=line.argument.flag,
        rate_rule=line.rule.value,
        rate_flag=line.rate.flag if line.rate is not None else "",
        rate_before=_rate_before(course.plan, line),
        rate_after=rate or "",
        arguments=line.arguments(size),
    )


def _rate_before(plan: Plan, line: BatchLine) -> str:
    """The script's own, also where it was started with another."""
    if line.rate is None:
        return ""
    return (line.rate_at(plan.batch_too_large) if plan.batch_too_large else line.rate.value) or ""


def _mean(values: Sequence[float], none: str = "not-measured") -> float | Missing:
    return sum(values) / len(values) if values else Missing(none)
