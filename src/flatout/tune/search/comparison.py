"""One comparison: two arms in turn until the figures decide, the hope is gone, or the time is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from flatout.base.records import Missing, replace
from flatout.measure.statistics import (
    PAIRS_AT_LOOK,
    Answer,
    Comparison,
    Pair,
    compare,
    plainly_faster,
    plainly_slower,
    plausible_gain,
)
from flatout.tune.search.arm_order import CEILING_LENGTH, USUAL, Shape, a_first, differing, restarting
from flatout.tune.search.device_or_host_bound import Pace, pace_of
from flatout.tune.search.questions_and_answers import Mode, Outcome, OutcomeState, SegmentResult, Status, Values, compared_rates
from flatout.tune.search.search_state import Course, Steps
from flatout.tune.search.stop_reasons import StandingBrokenError

WORTH = 0.02  # a knob that can hardly give this much is not measured any longer …
WORTH_IN_A_HURRY = 0.04  # … nor one that takes the time of others
LATE_LOOK, LATE_SHARE = 12, 0.1  # looks after so many pairs may take this share of the budget, all together
STANDING_TRIES = 3
NOT_MEASURED = Missing("not-measured")


class Suspect(Enum):
    """Whose fault a fault is. The other arm is what was kept, or the plain script, and gets more tries."""

    A = "a"
    B = "b"
    NEITHER = "neither"


@dataclass(kw_only=True)
class Question:
    a: Values
    b: Values
    mode: Mode
    suspect: Suspect = Suspect.B
    looks: tuple[int, ...] = PAIRS_AT_LOOK
    worth: float | None = WORTH  # None: go on to the last look whatever hope there is
    second_chance: bool = True  # a suspect that failed is tried once more, alone; not where it is a group, or had its chance
    shape: Shape = USUAL
    shape_b: Shape | None = None  # where B has another one: batches put together in a running child
    beside: Mode | None = None  # B once more next to each B, from where its lower ceiling shows
    settled_if_clear: bool = False  # two plain pairs are enough: what they keep is judged again in the whole

    def shape_of(self, arm: str) -> Shape:
        return self.shape_b if arm == "b" and self.shape_b is not None else self.shape


@dataclass(kw_only=True)
class Trial:
    pairs: list[Pair] = field(default_factory=list)
    comparison: Comparison | None = None
    fault: Status | None = None
    unapplied: dict[str, Outcome] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)  # of B
    build_a_s: float = 0.0
    build_b_s: float = 0.0
    step_a_s: float | Missing = NOT_MEASURED
    step_b_s: float | Missing = NOT_MEASURED
    rates_a: list[float] = field(default_factory=list)
    rates_b: list[float] = field(default_factory=list)
    beside: list[Pair] = field(default_factory=list)  # the ceiling and B, a pair for each of `pairs`
    power_a: list[float] = field(default_factory=list)
    power_b: list[float] = field(default_factory=list)
    working_a: list[float] = field(default_factory=list)
    working_b: list[float] = field(default_factory=list)
    plainly_slower: bool = False
    plainly_faster: bool = False
    out_of_time: bool = False
    _tried_alone: bool = False
    _standing_faults: int = 0

    @property
    def build_s(self) -> float:
        """What B spends once beyond A, which builds too where each arm has a child of its own."""
        return max(0.0, self.build_b_s - self.build_a_s)


def hold(course: Course, question: Question) -> Steps[Trial]:
    trial = yield from _held(course, question)
    if question.shape is USUAL and question.shape_b is None and not restarting(course.plan, question.a, question.b):
        course.noise.saw_pairs(question.mode, trial.pairs)
    return trial


def _held(course: Course, question: Question) -> Steps[Trial]:
    trial = Trial()
    fresh = restarting(course.plan, question.a, question.b)
    for last in question.looks:
        while len(trial.pairs) < last:
            pair = yield from _pair(course, question, trial, a_first(len(trial.pairs), fresh))
            if trial.out_of_time:
                trial.comparison = compare(trial.pairs, course.noise.of(question.mode), question.looks)
                return trial
            if trial.fault is not None or (trial.unapplied and not differing(question.a, question.b)):
                return trial
            if pair is not None:
                trial.pairs.append(pair)
            if question.worth is None and trial.pairs and _spent(course, question, trial):
                return trial
            if len(trial.pairs) == 2 and (_clear_already(course, question, trial) or _too_late(course, question, trial)):
                return trial
        if _decided(course, question, trial):
            return trial
    return trial


def _clear_already(course: Course, question: Question, trial: Trial) -> bool:
    noise = course.noise.of(question.mode)
    if question.worth is not None and plainly_slower(trial.pairs, noise):
        trial.plainly_slower = True
    if question.settled_if_clear and plainly_faster(trial.pairs, noise):
        trial.plainly_faster = True
    if trial.plainly_slower or trial.plainly_faster:
        trial.comparison = compare(trial.pairs, noise, question.looks)
    return trial.plainly_slower or trial.plainly_faster


def _too_late(course: Course, question: Question, trial: Trial) -> bool:
    """In a hurry a comparison begins where two pairs can be paid: what they leave open may have to stay so."""
    if not course.in_a_hurry or question.worth is None:
        return False
    trial.out_of_time = course.left_s() < _pairs_s(course, question, question.looks[0] - len(trial.pairs))
    if trial.out_of_time:
        trial.comparison = compare(trial.pairs, course.noise.of(question.mode), question.looks)
    return trial.out_of_time


def _spent(course: Course, question: Question, trial: Trial) -> bool:
    """Whether a last comparison in fresh children, which are dear, has come to the end of the budget."""
    trial.out_of_time = question.shape_b is not None and course.spent_s >= course.plan.budget_s
    if trial.out_of_time:
        trial.comparison = compare(trial.pairs, course.noise.of(question.mode), question.looks)
    return trial.out_of_time


def _decided(course: Course, question: Question, trial: Trial) -> bool:
    noise = course.noise.of(question.mode)
    trial.comparison = compare(trial.pairs, noise, question.looks)
    course.saw(trial.comparison)
    if trial.comparison.answer in (Answer.FASTER, Answer.SLOWER):
        return True
    if question.worth is not None:
        hope = plausible_gain(trial.pairs)
        if isinstance(hope, float) and hope < question.worth:
            return True
        ratio = trial.comparison.ratio
        if course.in_a_hurry and isinstance(ratio, float) and ratio < 1 + WORTH_IN_A_HURRY:
            return True
        # What is wanted for the end of the search is not spent on a third look, nor what others want on a fourth.
        more_s = _pairs_s(course, question, _next_look(question, trial) - len(trial.pairs))
        if len(trial.pairs) >= LATE_LOOK:
            course.late_looks_s += more_s
        too_late = course.late_looks_s > LATE_SHARE * course.plan.budget_s
        trial.out_of_time = (too_late and len(trial.pairs) >= LATE_LOOK) or course.left_s() < more_s
    else:
        trial.out_of_time = course.spent_s > course.plan.budget_s
    return trial.out_of_time


def _pairs_s(course: Course, question: Question, pairs: int) -> float:
    """What so many pairs more take: where each arm needs a child of its own, one of the two meets its own again."""
    children = pairs if restarting(course.plan, question.a, question.b) else 0
    return course.cost_s(2 * pairs, children, mode=question.mode)


def _next_look(question: Question, trial: Trial) -> int:
    return next((look for look in question.looks if look > len(trial.pairs)), len(trial.pairs))


def _pair(course: Course, question: Question, trial: Trial, first_is_a: bool) -> Steps[Pair | None]:
    """A and B beside each other, or None where the pair must be measured again."""
    results: dict[str, SegmentResult] = {}
    arms = ("a", "b", "beside")
    for arm in arms if first_is_a else reversed(arms):
        if arm == "beside":
            results.update((yield from _ceiling(course, question)))
            continue
        values = question.a if arm == "a" else question.b
        result = yield from course.ask(values, question.mode, shape=question.shape_of(arm), may_be_late=True)
        if result.status is Status.LATE:
            trial.out_of_time = True
            return None
        if result.status is Status.REFUSED and (arm == question.suspect.value or question.shape.epochs > 0):
            _refused(question, trial, result)
            return None
        if result.fault or isinstance(result.rate, Missing):
            yield from _after_fault(course, question, trial, arm, result)
            return None
        if arm == question.suspect.value and _note_unapplied(question, trial, result):
            return None
        results[arm] = result
        note_arm(trial, arm, result)
    trial._standing_faults = 0
    for rates, result in ((trial.rates_a, results["a"]), (trial.rates_b, results["b"])):
        if isinstance(result.rate, float):
            rates.append(result.rate)
    if "beside" in results:
        beside = compared_rates(results["beside"], results["b"])
        trial.beside += [Pair(*beside, not first_is_a)] if beside is not None else []
    found = compared_rates(results["a"], results["b"])
    return Pair(*found, first_is_a) if found is not None else None


def _ceiling(course: Course, question: Question) -> Steps[dict[str, SegmentResult]]:
    """What B could do, under its name; nothing where that cannot be had, and it is not asked for again."""
    if question.beside is None:
        return {}
    shape = replace(question.shape_of("b"), longer=CEILING_LENGTH)
    result = yield from course.ask(question.b, question.beside, shape=shape, may_be_late=True)
    if result.status is not Status.OK or isinstance(result.rate, Missing):
        question.beside = None
        return {}
    return {"beside": result}


def note_arm(trial: Trial, arm: str, result: SegmentResult) -> None:
    if isinstance(result.power_w, float):
        (trial.power_a if arm == "a" else trial.power_b).append(result.power_w)
    if isinstance(result.working, float):
        (trial.working_a if arm == "a" else trial.working_b).append(result.working)
    if arm == "a":
        trial.step_a_s = result.step_s
        trial.build_a_s = max(trial.build_a_s, result.build_s)
    else:
        trial.pace = pace_of(result)
        trial.step_b_s = result.step_s
        trial.build_b_s = max(trial.build_b_s, result.build_s)


def _refused(question: Question, trial: Trial, result: SegmentResult) -> None:
    """The whole segment was refused: every knob on trial was."""
    outcome = Outcome(state=OutcomeState.REFUSED, code=result.code or "refused", details=result.details)
    for knob in differing(question.a, question.b):
        trial.unapplied[knob] = outcome
    if not trial.unapplied:
        trial.fault = result.status  # it is no knob that cannot be had, but the segment
    question.b = dict(question.a)


def note_without_effect(trial: Trial, result: SegmentResult, knobs: Sequence[str]) -> dict[str, Outcome]:
    """Which of these had no effect: no effect, no verdict."""
    silent = Outcome(state=OutcomeState.REFUSED, code=result.code or "no-report", details=result.details)
    found = {knob: result.outcomes.get(knob, silent) for knob in knobs}
    found = {knob: outcome for knob, outcome in found.items() if outcome.state is not OutcomeState.APPLIED}
    if found:
        trial.unapplied.update(found)
        trial.pairs.clear()
    return found


def _note_unapplied(question: Question, trial: Trial, result: SegmentResult) -> bool:
    """Takes knobs without an effect out of the comparison."""
    suspected, other = (question.b, question.a) if question.suspect is Suspect.B else (question.a, question.b)
    found = note_without_effect(trial, result, differing(other, suspected))
    if not found:
        return False
    left = {knob: value for knob, value in suspected.items() if knob not in found}
    left.update({knob: other[knob] for knob in found if knob in other})
    if question.suspect is Suspect.B:
        question.b = left
    else:
        question.a = left
    return True


def _after_fault(course: Course, question: Question, trial: Trial, arm: str, result: SegmentResult) -> Steps[None]:
    """A suspect gets one more try, alone in a child of its own; the other arm a few."""
    if arm != question.suspect.value:
        trial._standing_faults += 1
        if trial._standing_faults >= STANDING_TRIES:
            raise StandingBrokenError(result.status)
        return
    if trial._tried_alone or not question.second_chance or course.left_s() < result.took_s:
        trial.fault = result.status
        return
    trial._tried_alone = True
    values = question.a if arm == "a" else question.b
    again = yield from course.ask(values, question.mode, fresh=True, shape=question.shape_of(arm), may_be_late=True)
    if again.fault or isinstance(again.rate, Missing):
        trial.fault = again.status if again.fault else result.status
