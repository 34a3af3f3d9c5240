"""Knobs of the compute side, one after the other on replayed batches: hot ones, those that need a child, those that build."""

from __future__ import annotations

from typing import Any

from flatout.base.records import Missing, replace
from flatout.knobs.catalogue import RECORDED
from flatout.knobs.model import Bound
from flatout.measure.statistics import PAIRS_AT_LOOK, Comparison
from flatout.tune.batch.size_search import batch_size
from flatout.tune.search.arm_order import LOOK_SEGMENTS, USUAL, children_for, epochs_s, restart_values, segments_for, workers_of
from flatout.tune.search.baseline import HARDLY, bare_floor, raise_floor, waits
from flatout.tune.search.comparison import Question, Trial
from flatout.tune.search.compile_order import BUILD_GUESS_S, GRAPHS, build_guess_s, in_order
from flatout.tune.search.failing_knob import held
from flatout.tune.search.knob_verdict import judge, percent
from flatout.tune.search.questions_and_answers import BatchGoal, Decision, Mode, Offer, Params, Values, Verdict
from flatout.tune.search.search_state import FEWEST_SEGMENTS, FINAL_PAIRS, REBUILD, Course, Steps
from flatout.tune.search.slow_step_rotation import rotate

KEPT_BUSY = 0.98  # a device as busy as this has no launches to save
PARTNERS = (("precision", "channels_last"),)
OUTSIDE_THE_GRAPH = frozenset({"fused_optimizer", "gc_policy", "cpu_threads"})
COPYING = ("pin_memory", "non_blocking")
NO_GAIN_ALONE = ("slower", "inside-noise", "unclear")
RESTARTS_SHARE = 0.2  # of the budget, for a comparison in children of its own
OUTRUN = 1.25  # a loader gives unevenly, and less beside a training
STARVED = 0.6  # busy for less of the time, a device waits for launches
FIRST_IF_SLOW = ("cpu_threads", "precision", "tf32", "channels_last", "fused_optimizer")
USUAL_ONES = frozenset({"precision", "channels_last", "fused_optimizer"})


def is_compute(offer: Offer) -> bool:
    return offer.knob != "batch_size" and not {Bound.INPUT, Bound.COPY} & set(offer.cures)


def compute_knobs(course: Course) -> Steps[None]:
    """Compile late, so that it builds for what is kept; but where launches plainly hold the device up, its cures come first,
    because until then no other knob of the compute side can show anything."""
    if course.sparing and not course.batch_to_come:
        yield from _beside_one_plain_arm(course)
        return
    if course.plan.batch is BatchGoal.GROW and starved(course):
        # More samples a step are the plainest cure of launching; and once something is recorded each size costs a child.
        yield from batch_size(course)
    if course.in_a_hurry and (course.contended or isinstance(course.pace.busy, float)):
        yield from all_at_once(course)
    if course.contended or starved(course):
        if not course.in_a_hurry:  # else the larger gain comes first
            yield from hot_knobs(course, [offer for offer in _hot(course) if Bound.LAUNCH in offer.cures])
        yield from batch_size(course)
        yield from building_knobs(course)
        if course.in_a_hurry:
            yield from hot_knobs(course, [offer for offer in _hot(course) if Bound.LAUNCH in offer.cures])
        yield from copying_knobs(course)
        yield from hot_knobs(course, [offer for offer in _hot(course) if Bound.LAUNCH not in offer.cures])
    else:
        yield from hot_knobs(course, _hot(course))
        yield from copying_knobs(course)
        if _restarts_are_cheap(course):
            yield from restart_knobs(course)
        yield from batch_size(course)
        yield from building_knobs(course)


def _beside_one_plain_arm(course: Course) -> Steps[None]:
    """Each is dear: what mostly gives most comes first, beside one plain arm."""
    course.stage = "compute"
    offers = sorted(_hot(course), key=lambda offer: FIRST_IF_SLOW.index(offer.knob) if offer.knob in FIRST_IF_SLOW else 9)
    course.pending = 2 * (len(offers) + 1)
    yield from rotate(course, offers, course.judging)
    yield from building_knobs(course)
    if _restarts_are_cheap(course):
        yield from restart_knobs(course)


def all_at_once(course: Course) -> Steps[None]:
    """The usual ones in one comparison, on a card: one after the other would take the whole budget, beside busy workers even
    more so. Graphs are among them, unless the device never waits: what relieves only one of host and device shows little alone.
    Where they do not win together, each has its own turn; where they do, each is left out once if there is time."""
    usual = [offer for offer in _hot(course) if offer.knob in USUAL_ONES and offer.values]
    if course.pace.mostly_idle or (
        starved(course) and not course.contended
    ):  # what makes the device faster makes it wait longer
        usual = [offer for offer in usual if Bound.LAUNCH in offer.cures]
    offers = usual if course.batch_to_come else usual + _payable_graphs(course)  # recorded, each batch would cost a child
    offers = [offer for offer in offers if course.closed(offer.knob, offer.values[0]) is None]
    if len(offers) > 1:
        course.stage = "compute"
        course.pending = LOOK_SEGMENTS
        before = dict(course.whole)
        yield from together(course, offers, course.judging)
        if course.whole == before:
            for offer in offers:
                if course.closed(offer.knob, offer.values[0]) is None:
                    course.decisions.pop((offer.knob, offer.values[0]), None)


def starved(course: Course) -> bool:
    """Whether launches plainly hold the device up."""
    return course.pace.mostly_idle or (isinstance(course.pace.busy, float) and course.pace.busy < STARVED)


def _payable_graphs(course: Course) -> list[Offer]:
    """The first way to CUDA graphs that is offered and can be paid: compiled, or as the script launches its kernels."""
    for offer in graphs_offered(course):
        (value,) = offer.values
        needs = course.cost_s(FEWEST_SEGMENTS, 0, build_guess_s(course, offer, value), course.judging)
        if course.closed(offer.knob, value) is None and course.left_s() >= needs and not _beyond_repair(course, offer, value):
            return [offer]
    return []


def graphs_offered(course: Course) -> list[Offer]:
    building = [offer for offer in course.offers() if is_compute(offer) and offer.builds]
    return [replace(offer, values=[value]) for offer in building for value in offer.values if value in GRAPHS]


def _restarts_are_cheap(course: Course) -> bool:
    """Before compile they cost least; but where children are dear they must not eat the time of what gives more."""
    dear = [surcharge_s(course, offer) for offer in course.offers() if is_compute(offer) and offer.restart]
    cost = course.cost_s(LOOK_SEGMENTS, children_for(PAIRS_AT_LOOK[0]), mode=course.judging) + max(dear, default=0.0)
    return cost < RESTARTS_SHARE * course.plan.budget_s


def _hot(course: Course) -> list[Offer]:
    return [offer for offer in course.offers() if is_compute(offer) and not offer.restart and not offer.builds]


def hot_knobs(course: Course, offers: list[Offer]) -> Steps[None]:
    course.stage = "compute"
    # What cures the class of this loop comes first; the order of the plan decides the rest. TF32 comes before the formats that
    # make it idle: these are then judged against it, while after them it could show nothing.
    offers.sort(key=lambda offer: (course.bound not in offer.cures, offer.knob != "tf32"))
    for index, offer in enumerate(offers):
        course.pending = LOOK_SEGMENTS * (len(offers) - index)
        yield from each_value(course, offer, course.judging)


def each_value(course: Course, offer: Offer, mode: Mode) -> Steps[None]:
    for value in offer.values:
        if course.whole.get(offer.knob) == value:
            continue
        decision = yield from consider(course, offer, value, mode)
        if offer.first_only and decision.verdict is Verdict.KEPT:
            return


def consider(
    course: Course,
    offer: Offer,
    value: str,
    mode: Mode,
    build_s: float = 0.0,
    segments: int = LOOK_SEGMENTS,
    **more: Any,
) -> Steps[Decision]:
    """One value of one knob against the whole, where there is time for it; `more` is for the question."""
    if (closed := course.closed(offer.knob, value)) is not None:
        return closed
    if is_compute(offer) and outruns_supply(course):
        figures: Params = {"supply": round(course.most_supply or 0.0, 1), "demand": _told(course.ceilings.with_copy)}
        return course.decisions.get((offer.knob, value)) or course.decide(offer, value, "input-is-the-wall", figures)
    children = children_for(PAIRS_AT_LOOK[0]) if offer.restart else 0
    build_s += rebuild_s(course, offer)
    needs = course.cost_s(_fewest(course, segments), children, build_s, mode) + surcharge_s(course, offer)
    needs = max(needs, segments * epochs_s(course.plan, course.step_s, more.get("shape", USUAL).epochs))
    needs = max(needs, course.hang_s if offer.knob in course.doubted else 0.0)
    if course.left_s() < needs:
        return course.no_time(offer, value, needs)
    course.trying = [offer.knob]
    more.setdefault("second_chance", offer.knob not in course.doubted)
    more.setdefault("looks", looks_at(course, offer.restart, mode))
    for _ in range(2):
        standing = {**course.whole, **course.aid}
        question = Question(a=standing, b={**standing, offer.knob: value}, mode=mode, settled_if_clear=True, **more)
        trial = yield from held(course, question)
        if trial is not None:
            course.trying = []
            decision = judge(course, offer, value, trial, mode)
            if decision.verdict is Verdict.KEPT and mode is course.compute_mode:
                raise_floor(course, decision.ratio)
            return decision
    course.trying = []
    return course.decide(offer, value, "interrupted", {"status": course.broke.value})


def _fewest(course: Course, segments: int) -> int:
    return min(segments, FEWEST_SEGMENTS) if course.in_a_hurry else segments


def outruns_supply(course: Course) -> bool:
    """Whether the compute side could take more than the loader ever gives: then a faster one only waits longer. Without workers
    each waits for the other in turn, and every millisecond counts."""
    if not workers_of(course.plan, {**course.whole, **course.aid}):
        return False
    floor, most = course.ceilings.with_copy, course.most_supply
    return most is not None and isinstance(floor, float) and floor > OUTRUN * most


def rebuild_s(course: Course, offer: Offer) -> float:
    """What is compiled is compiled anew for another format or layout; an optimizer is not in it."""
    anew = is_compute(offer) and not offer.restart and not offer.builds and offer.knob not in OUTSIDE_THE_GRAPH
    return course.first_build_s if anew else 0.0


def looks_at(course: Course, restarts: bool, mode: Mode) -> tuple[int, ...]:
    """Of a comparison in children of its own, as many looks as are cheap: it must not eat the time of what gives more."""
    if not restarts:
        return PAIRS_AT_LOOK
    share = RESTARTS_SHARE * course.plan.budget_s
    cheap = [pairs for pairs in PAIRS_AT_LOOK if course.cost_s(segments_for(pairs), children_for(pairs), mode=mode) < share]
    return tuple(cheap) or PAIRS_AT_LOOK[:1]


def surcharge_s(course: Course, offer: Offer) -> float:
    """The first kept knob that needs a child makes the last comparison restart as well, with all that must be built."""
    if not offer.restart or restart_values(course.plan, course.whole):
        return 0.0
    building = any(other.builds for other in course.offers()) and not course.longest_build_s
    guess = FINAL_PAIRS / 2 * REBUILD * BUILD_GUESS_S if building else 0.0
    return course.final_s(restarts=True) - course.final_s(restarts=False) + guess


def restart_knobs(course: Course) -> Steps[None]:
    """All that need a fresh child in one comparison: children are dear, and most of these knobs are harmless."""
    offers = [offer for offer in course.offers() if is_compute(offer) and offer.restart and not offer.builds]
    offers = [offer for offer in offers if offer.values and offer.knob not in course.whole]
    offers = [offer for offer in offers if course.closed(offer.knob, offer.values[0]) is None]
    if not offers:
        return
    course.stage = "restart"
    course.pending = LOOK_SEGMENTS
    second_chance = True
    if len(offers) > 1:
        trial = yield from together(course, offers, course.judging)
        if trial is None:
            return
        lone = trial.fault is not None or trial.plainly_slower
        offers = [offer for offer in offers if lone and offer.knob not in trial.unapplied]
        second_chance = trial.fault is None
    for offer in offers:
        yield from consider(course, offer, offer.values[0], course.judging, second_chance=second_chance)


def partners(course: Course) -> Steps[None]:
    """Knobs that gain together what neither gains alone: tensor cores want the layout as well as the format."""
    for names in PARTNERS:
        offers = [offer for offer in course.offers() if offer.knob in names]
        alone = {key: one for offer in offers if (one := course.decisions.get(key := (offer.knob, offer.values[0])))}
        if len(alone) == len(names) and all(one.code in NO_GAIN_ALONE for one in alone.values()):
            yield from together(course, offers, course.judging)
            # The figures of a pair that was not kept say nothing of each.
            course.decisions.update({key: one for key, one in alone.items() if key[0] not in course.whole})


def together(course: Course, offers: list[Offer], mode: Mode, segments: int = LOOK_SEGMENTS) -> Steps[Trial | None]:
    """Several knobs in one comparison: all of them are kept, or none."""
    children = children_for(PAIRS_AT_LOOK[0]) if any(offer.restart for offer in offers) else 0
    build_s = (
        0.0 if children else max(rebuild_s(course, offer) + build_guess_s(course, offer, offer.values[0]) for offer in offers)
    )
    needs = course.cost_s(_fewest(course, segments), children, build_s, mode) + surcharge_s(course, offers[0])
    if course.left_s() < needs:
        for offer in offers:
            course.no_time(offer, offer.values[0], needs)
        return None
    change: Values = {offer.knob: offer.values[0] for offer in offers}
    course.trying = list(change)
    standing = {**course.whole, **course.aid}
    looks = looks_at(course, bool(children), mode)
    question = Question(
        a=standing, b={**standing, **change}, mode=mode, looks=looks, second_chance=False, settled_if_clear=True
    )
    trial = yield from held(course, question)
    course.trying = []
    if trial is not None and trial.fault is not None:
        course.doubted.update(change)
    for offer in offers:
        if trial is None:
            course.decide(offer, offer.values[0], "interrupted", {"status": course.broke.value})
        elif trial.fault is None or offer.knob in trial.unapplied:
            judge(course, offer, offer.values[0], trial, question.mode)
    kept = [offer for offer in offers if offer.knob in course.whole]
    if trial is not None and trial.comparison is not None and kept:
        _say_together(course, kept, trial.comparison, mode)
        if mode is course.compute_mode:
            raise_floor(course, trial.comparison.ratio)
    return trial


def _say_together(course: Course, kept: list[Offer], found: Comparison, mode: Mode) -> None:
    """The figure is that of all of them."""
    for offer in kept if len(kept) > 1 else []:
        value = course.whole[offer.knob]
        others = ", ".join(f"{other.knob} {course.whole[other.knob]}" for other in kept if other is not offer)
        course.decide(offer, value, "faster-together", {"gain": percent(found.ratio), "others": others}, (found, mode))


def copying_knobs(course: Course) -> Steps[None]:
    """Pinned batches and copies that do not wait, together: the one is little without the other."""
    offers = copying_offers(course)
    ceilings = course.ceilings
    known = course.compute_mode is Mode.REPLAY_HOST and isinstance(ceilings.without_copy, float)
    if not offers or not known or not waits(ceilings.with_copy, bare_floor(course), HARDLY) or outruns_supply(course):
        return
    course.stage = "copy"
    course.pending = LOOK_SEGMENTS
    if len(offers) == 1:
        yield from consider(course, offers[0], offers[0].values[0], course.compute_mode)
    else:
        yield from together(course, offers, course.compute_mode)


def copying_offers(course: Course) -> list[Offer]:
    """Those that nothing was decided about yet, or nothing but that other costs hid what they give."""
    offers = [offer for offer in course.offers() if offer.knob in COPYING and offer.knob not in course.whole]
    found = [(offer, course.decisions.get((offer.knob, offer.values[0]))) for offer in offers]
    return [
        offer
        for offer, decision in found
        if decision is None
        or decision.code == "no-time"
        or (decision.mode is Mode.REAL is not course.compute_mode and decision.code in NO_GAIN_ALONE)
    ]


def building_knobs(course: Course) -> Steps[None]:
    """Compile: late, once, and only where a training is long enough to give back what it costs."""
    for offer in [offer for offer in course.offers() if is_compute(offer) and offer.builds]:
        course.stage = "build"
        if course.in_a_hurry and offer.knob in course.whole:
            continue  # the other mode would cost as much again as all that is still to be tried
        values = in_order(course, offer.values)
        for index, value in enumerate(values):
            course.pending = LOOK_SEGMENTS * (len(values) - index)
            closed = course.closed(offer.knob, value) is not None
            if course.whole.get(offer.knob) != value and not closed and not _beyond_repair(course, offer, value):
                guess = build_guess_s(course, offer, value)
                decision = yield from consider(course, offer, value, course.judging, guess, segments=FEWEST_SEGMENTS)
                if decision.verdict is Verdict.KEPT and course.in_a_hurry:
                    # The other mode would cost as much again as all that is still to be tried: at the end, if there is time.
                    for other in [value for value in values[index + 1 :] if not _beyond_repair(course, offer, value)]:
                        course.no_time(offer, other, build_guess_s(course, offer, other))
                    break


def _beyond_repair(course: Course, offer: Offer, value: str) -> bool:
    """Decides without a trial where it is plain that nothing can be won."""
    planned, step_s = course.plan.steps_planned, course.step_s
    compiling = value != RECORDED
    if compiling and planned is not None and isinstance(step_s, float) and planned * step_s < BUILD_GUESS_S / 2:
        course.decide(offer, value, "cannot-repay", {"training_s": round(planned * step_s, 1)})
        return True
    if compiling and (nothing := _nothing_captured(course, offer)) is not None:
        course.decide(offer, value, nothing.code, nothing.params)  # another mode of it captures no more
        return True
    # Beside busy workers the host launches more slowly than on kept batches, by which the device is judged.
    launched = course.contended or course.pace.keeps_up
    if value in GRAPHS and not launched and not isinstance(course.pace.busy, Missing) and course.pace.busy >= KEPT_BUSY:
        course.decide(offer, value, "not-launch-bound", {"busy": round(100 * course.pace.busy, 1)})
        return True
    return False


def _nothing_captured(course: Course, offer: Offer) -> Decision | None:
    said = [one for one in course.decisions.values() if one.knob == offer.knob and one.verdict is Verdict.NOT_APPLIED]
    return next((one for one in said if one.params.get("why") == "nothing-captured"), None)


def _told(rate: float | Missing) -> float:
    return round(rate, 1) if isinstance(rate, float) else 0.0
