"""Several settings against one plain arm, in turn: where steps are slow, a plain arm for each setting would cost too much.

A round is the standing knobs and each setting once, every other round backwards (A b c d, d c b A), so that a straight drift
cancels over two of them. What is plainly faster after two rounds is asked a third time: of several arms one is soon so by
chance. The best of those that still are is kept, and the others are asked again beside it; where none is, the rounds go on
while they can be paid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from flatout.base.records import Missing
from flatout.measure.statistics import Answer, Pair, compare, plainly_faster, plainly_slower, plausible_gain
from flatout.tune.search.comparison import STANDING_TRIES, WORTH, Trial, note_arm, note_without_effect
from flatout.tune.search.failing_knob import recover
from flatout.tune.search.knob_verdict import judge, percent
from flatout.tune.search.questions_and_answers import Mode, Offer, Params, SegmentResult, Status, Values, compared_rates
from flatout.tune.search.search_state import Course, Steps
from flatout.tune.search.stop_reasons import StandingBrokenError

FEWEST_ROUNDS = 2
MOST_ROUNDS = 8
LOOKS = (4, 5, 6, 7, 8)  # rounds after which an interval is looked at
NOT_BESIDE = "faster-not-beside"


@dataclass(kw_only=True)
class Arm:
    offer: Offer
    trial: Trial = field(default_factory=Trial)
    tried_alone: bool = False  # after a fault, in a child of its own

    @property
    def value(self) -> str:
        return self.offer.values[0]

    @property
    def over(self) -> bool:
        trial = self.trial
        return trial.fault is not None or bool(trial.unapplied) or trial.plainly_slower or trial.plainly_faster


def rotate(course: Course, offers: Sequence[Offer], mode: Mode) -> Steps[None]:
    """The first value of each, in their order where there is not time for all."""
    waiting = [Arm(offer=offer) for offer in offers if offer.values and not _settled(course, offer)]
    while waiting:
        fitting = int(course.left_s() / (FEWEST_ROUNDS * course.hot_s(mode))) - 1
        if fitting < 1:
            for arm in waiting:
                _no_time(course, arm, mode)
            return
        asked, later = waiting[:fitting], waiting[fitting:]
        try:
            again = yield from _compared(course, [Arm(offer=arm.offer) for arm in asked], mode)
        except StandingBrokenError as broken:
            if not (yield from recover(course, broken.status, mode)):
                raise
            again = list(asked)
        course.trying = []
        waiting = [*again, *later]


def _settled(course: Course, offer: Offer) -> bool:
    return offer.knob in course.whole or course.closed(offer.knob, offer.values[0]) is not None


def _no_time(course: Course, arm: Arm, mode: Mode) -> None:
    """For what was plainly faster it is the time beside the one that was kept that is missing."""
    needs_s, found = 2 * FEWEST_ROUNDS * course.hot_s(mode), arm.trial.comparison
    if arm.trial.plainly_faster and found is not None and course.order:
        params: Params = {"gain": percent(found.ratio), "pairs": found.pairs, "other": course.order[-1]}
        course.decide(arm.offer, arm.value, NOT_BESIDE, params, (found, mode))
    else:
        course.no_time(arm.offer, arm.value, needs_s)


def _compared(course: Course, arms: list[Arm], mode: Mode) -> Steps[list[Arm]]:
    """Those that are to be asked again beside the one that was kept."""
    open_arms, rounds, late = list(arms), 0, False
    while open_arms and rounds < MOST_ROUNDS and not late:
        if rounds >= FEWEST_ROUNDS and course.left_s() < (1 + len(open_arms)) * course.hot_s(mode):
            break
        late = yield from _round(course, open_arms, mode, plain_first=rounds % 2 == 0)
        rounds += 1
        for arm in open_arms if rounds >= FEWEST_ROUNDS else []:
            _look_at(course, arm, mode)
        winners = [arm for arm in open_arms if arm.trial.plainly_faster and len(arm.trial.pairs) == FEWEST_ROUNDS]
        if winners and not late and course.left_s() >= (1 + len(winners)) * course.hot_s(mode):
            late = yield from _round(course, winners, mode, plain_first=rounds % 2 == 0)
            for arm in winners:
                _look_at(course, arm, mode)
        if any(arm.trial.plainly_faster for arm in arms):
            break
        open_arms = [arm for arm in open_arms if not arm.over and _hopeful(arm.trial)]
    return _decided(course, arms, mode, late or course.left_s() < 2 * FEWEST_ROUNDS * course.hot_s(mode))


def _round(course: Course, arms: list[Arm], mode: Mode, plain_first: bool) -> Steps[bool]:
    """Whether the budget ended in it. What was timed until then beside the plain arm counts."""
    standing: Values = {**course.whole, **course.aid}
    order: list[Arm | None] = [None, *arms] if plain_first else [*reversed(arms), None]
    plain: SegmentResult | None = None
    results: list[tuple[Arm, SegmentResult]] = []
    late = False
    for arm in order:
        course.trying = [] if arm is None else [arm.offer.knob]
        if arm is None:
            plain = yield from _standing(course, standing, mode)
            if plain.status is Status.LATE:
                return True
            continue
        result = yield from _tried(course, arm, {**standing, arm.offer.knob: arm.value}, mode)
        late = result.status is Status.LATE
        if late:
            break
        if result.fault:
            arm.trial.fault = result.status
        elif not note_without_effect(arm.trial, result, [arm.offer.knob]) and isinstance(result.rate, float):
            results.append((arm, result))
            note_arm(arm.trial, "b", result)
    for arm, result in results:
        found = compared_rates(plain, result) if plain is not None else None
        if plain is not None and found is not None:
            arm.trial.pairs.append(Pair(*found, plain_first))
            note_arm(arm.trial, "a", plain)
    return late


def _tried(course: Course, arm: Arm, values: Values, mode: Mode) -> Steps[SegmentResult]:
    """After a fault once more, in a child of its own: it may have been the machine's."""
    result = yield from course.ask(values, mode, may_be_late=True)
    if not result.fault or arm.tried_alone or course.left_s() < result.took_s:
        return result
    arm.tried_alone = True
    return (yield from course.ask(values, mode, fresh=True, may_be_late=True))


def _standing(course: Course, values: Values, mode: Mode) -> Steps[SegmentResult]:
    for _ in range(STANDING_TRIES):
        result = yield from course.ask(values, mode, may_be_late=True)
        if result.status is Status.LATE or isinstance(result.rate, float):
            return result
    raise StandingBrokenError(result.status)


def _look_at(course: Course, arm: Arm, mode: Mode) -> None:
    trial, noise = arm.trial, course.noise.of(mode)
    trial.plainly_slower = plainly_slower(trial.pairs, noise)
    trial.comparison = compare(trial.pairs, noise, LOOKS)
    trial.plainly_faster = plainly_faster(trial.pairs, noise) or trial.comparison.answer is Answer.FASTER


def _hopeful(trial: Trial) -> bool:
    hope = plausible_gain(trial.pairs)
    return isinstance(hope, Missing) or hope >= WORTH


def _decided(course: Course, arms: list[Arm], mode: Mode, no_more_time: bool) -> list[Arm]:
    """Keeps the best of those that are faster. What was faster as well, or is not clear yet, is asked again beside it."""
    faster = sorted((arm for arm in arms if arm.trial.plainly_faster), key=_ratio, reverse=True)
    unclear = [arm for arm in arms if not arm.over and _hopeful(arm.trial)]
    again = [*faster[1:], *(unclear if faster else [])]
    for arm in arms:
        if arm not in faster and (no_more_time or arm not in again):
            judge(course, arm.offer, arm.value, arm.trial, mode)
    for arm in faster[:1]:
        judge(course, arm.offer, arm.value, arm.trial, mode)
        if isinstance(arm.trial.step_b_s, float):
            course.step_s = arm.trial.step_b_s  # what the next ones are priced by
    for arm in faster[1:] if no_more_time else []:
        _no_time(course, arm, mode)
    return [] if no_more_time else again


def _ratio(arm: Arm) -> float:
    found = arm.trial.comparison
    return found.ratio if found is not None and isinstance(found.ratio, float) else 0.0
