"""The kept knobs together: what a moved bottleneck revives, what no longer earns its place, and what the whole is worth."""

from __future__ import annotations

import math

from flatout.base.records import Missing, replace
from flatout.knobs.catalogue import RECORDED
from flatout.measure.statistics import PAIRS_AT_LOOK, compare
from flatout.tune.batch.search_cost import last_pairs, last_shape, room_s
from flatout.tune.search.arm_order import LOOK_SEGMENTS, Shape, children_for, restart_values, segments_for
from flatout.tune.search.baseline import look, waits
from flatout.tune.search.comparison import Question, Suspect, Trial
from flatout.tune.search.compile_order import GRAPHS, build_guess_s
from flatout.tune.search.compute_knobs import (
    COPYING,
    NO_GAIN_ALONE,
    consider,
    is_compute,
    rebuild_s,
    restart_knobs,
)
from flatout.tune.search.failing_knob import held
from flatout.tune.search.knob_verdict import percent, still_earns
from flatout.tune.search.questions_and_answers import Ceilings, Decision, Mode, Offer, Params, Reached, Verdict
from flatout.tune.search.search_state import FEWEST_FINAL, FEWEST_SEGMENTS, FINAL_PAIRS, OVERTIME, Course, Steps

MOVED = math.log(1.05)  # the whole became so much faster since a knob was dropped that it may look different now
LEAVING_OUT_SHARE = 0.15  # of the budget, for leaving out what needs children or is compiled
# A batch is not left out, and workers that stay show over whole epochs only: these were judged last, in the whole.
JUDGED_ELSEWHERE = frozenset({"batch_size", "persistent_workers"})
GRAPHS_PASSED_OVER = ("better-value", "not-launch-bound", *NO_GAIN_ALONE)
HAD_NO_TURN = ("no-time", "faster-not-beside")
LEFT_OPEN = (*HAD_NO_TURN, "too-little", "unclear")
AT_FLOOR = 0.9
PLAIN_GAIN = 20.0  # per cent
FINAL_LOOKS = (FINAL_PAIRS, 2 * FINAL_PAIRS)
FEWEST_FINAL_PAIRS = 2  # fewer show nothing
SEEMING, LEAST_SEEMING = 2.0, 0.15  # times what one pair scatters by, and at least so much faster
LOOK_AGAIN = 6  # segments of a look at the ceilings


def revive(course: Course) -> Steps[bool]:
    """Tries again, once, what was dropped for its figures before the loop became another one."""
    kept_before = dict(course.whole)
    course.stage = "again"
    waiting = [decision for decision in list(course.decisions.values()) if _worth_again(course, decision)]
    for index, decision in enumerate(waiting):
        course.pending = LOOK_SEGMENTS * (len(waiting) - index)
        if decision.knob not in course.whole:
            yield from consider(course, course.offer(decision.knob), decision.value, course.judging)
    yield from _graphs_again(course)
    return course.whole != kept_before


def _graphs_again(course: Course) -> Steps[None]:
    """What was compiled without them may wait for launches by now; and recording them costs nothing to try."""
    decision = next((one for one in course.decisions.values() if one.value == RECORDED), None)
    waiting = isinstance(course.pace.busy, Missing) or course.pace.waits_for_launches
    if decision is None or decision.code not in GRAPHS_PASSED_OVER or course.whole.get(decision.knob) in GRAPHS or not waiting:
        return
    if _gain_since(course, decision) > MOVED:
        yield from consider(course, course.offer(decision.knob), RECORDED, course.judging, segments=FEWEST_SEGMENTS)


def _worth_again(course: Course, decision: Decision) -> bool:
    offer = course.offer(decision.knob)
    if offer.builds or offer.restart or not is_compute(offer) or decision.code not in NO_GAIN_ALONE:
        return False
    return _gain_since(course, decision) > MOVED


def _moved_since(course: Course, offer: Offer) -> bool:
    decision = course.decisions.get((offer.knob, offer.values[0]))
    if decision is None or decision.code == "no-time":
        return True
    return decision.code in NO_GAIN_ALONE and _gain_since(course, decision) > MOVED


def _gain_since(course: Course, decision: Decision) -> float:
    """Of the compute side, from the keeps that came after this decision."""
    keys = list(course.decisions)
    position = keys.index((decision.knob, decision.value))
    later = [course.decisions[key] for key in keys[position + 1 :]]
    return sum(
        math.log(other.ratio)
        for other in later
        if course.whole.get(other.knob) == other.value
        and isinstance(other.ratio, float)
        and is_compute(course.offer(other.knob))
    )


def spare_time(course: Course) -> Steps[bool]:
    """What there was no time for while time was kept back for more important things; fresh children last, being dear."""
    restarting = [offer for offer in course.offers() if is_compute(offer) and offer.restart and offer.values]
    kept_before = dict(course.whole)
    course.stage = "again"
    codes = (*HAD_NO_TURN, "not-launch-bound") if course.pace.waits_for_launches else HAD_NO_TURN  # by now
    left_out = [d for d in course.decisions.values() if d.code in codes and is_compute(course.offer(d.knob))]
    for decision in left_out:
        offer = course.offer(decision.knob)
        if not offer.restart:
            course.stage = "build" if offer.builds else "again"
            guess = build_guess_s(course, offer, decision.value)
            yield from consider(course, offer, decision.value, course.judging, guess, FEWEST_SEGMENTS)
    course.stage = "again"
    undecided = not any(course.tried(offer.knob, offer.values[0]) for offer in restarting)
    if restarting and (undecided or any(_moved_since(course, offer) for offer in restarting)):
        yield from restart_knobs(course)
    return course.whole != kept_before


def what_was_left_open(course: Course) -> Steps[None]:
    """Where nothing was kept, what was kept back for the end is there for what there was too little time for."""
    course.stage = "again"
    for decision in [one for one in course.decisions.values() if one.code in LEFT_OPEN]:
        offer = course.offer(decision.knob)
        if course.whole or offer.knob in ("workers", "persistent_workers", "batch_size"):
            continue  # these have their own ways
        mode = course.judging if is_compute(offer) else Mode.REAL
        guess = build_guess_s(course, offer, decision.value)
        yield from consider(course, offer, decision.value, mode, guess, FEWEST_SEGMENTS)


def keep_what_seems_faster(course: Course) -> None:
    """What a few pairs showed to be far faster, with no time for more of them: the whole runs that follow decide."""
    open_ones = [
        one for one in course.decisions.values() if one.code in ("too-little", "unclear") and _seems_faster(course, one)
    ]
    for decision in sorted(open_ones, key=lambda one: _ratio(one), reverse=True):
        if decision.knob not in course.whole and decision.knob not in ("persistent_workers", "batch_size"):
            gain, key = percent(decision.ratio), (decision.knob, decision.value)
            params: Params = {"gain": gain, "pairs": decision.pairs}
            course.decisions[key] = replace(decision, verdict=Verdict.KEPT, code="seems-faster", params=params)
            course.keep(decision.knob, decision.value)
            if course.offer(decision.knob).builds:
                course.build_s[decision.knob] = build_guess_s(course, course.offer(decision.knob), decision.value)
            course.unpaid = course.unpaid | {decision.knob}
            course.first_gain.setdefault(decision.knob, gain)


def _seems_faster(course: Course, decision: Decision) -> bool:
    noise = course.noise.of(decision.mode) if decision.mode is not None else Missing("not-measured")
    scatter = noise if isinstance(noise, float) else LEAST_SEEMING
    return decision.pairs >= FEWEST_FINAL_PAIRS and _ratio(decision) > 1 + max(LEAST_SEEMING, SEEMING * scatter)


def _ratio(decision: Decision) -> float:
    return decision.ratio if isinstance(decision.ratio, float) else 1.0


def drop_each_once(course: Course) -> Steps[None]:
    """Every kept knob is left out once; those that gave least first, should the time not be enough for all."""
    asked = [knob for knob in course.order if knob not in JUDGED_ELSEWHERE and not _plainly_needed(course, knob)]
    # What changes numbers first: what leaves every bit may stay for want of time.
    names = sorted(asked, key=lambda knob: (course.is_exact(knob), course.first_gain.get(knob, 0.0)))
    if len(course.order) < 2:
        return
    course.stage = "each"
    for index, knob in enumerate(names):
        course.pending = LOOK_SEGMENTS * (len(names) - index) // 2
        offer = course.offer(knob)
        if knob not in course.whole or _too_dear(course, offer):
            continue
        course.trying = [knob]
        without = {name: value for name, value in course.whole.items() if name != knob}
        mode = _where_it_shows(course, offer)
        question = Question(a=without, b=course.whole, mode=mode, suspect=Suspect.A, settled_if_clear=True)
        trial = yield from held(course, question)
        if trial is not None and not still_earns(course, offer, trial, mode):
            course.remove(knob)
    course.trying = []


def _where_it_shows(course: Course, offer: Offer) -> Mode:
    """A loop that runs at its floor gains what the floor gains: on kept batches that is seen sooner. One that waits for data
    which more workers might give shows nothing of what it computes with."""
    replayed = is_compute(offer) or offer.knob in COPYING
    at_floor = not waits(course.ceilings.real, course.ceilings.with_copy, AT_FLOOR)
    starved = not course.contended and course.most_supply is None and course.supply_tells
    return course.compute_mode if replayed and (at_floor or starved) else Mode.REAL


def _plainly_needed(course: Course, knob: str) -> bool:
    """Workers of a loop that waited plainly: whatever made it faster since wants more of them, not fewer."""
    return knob == "workers" and course.first_gain.get(knob, 0.0) > PLAIN_GAIN


def _too_dear(course: Course, offer: Offer) -> bool:
    """A knob that was shown in children of its own is asked again only where these cost little."""
    children = children_for(PAIRS_AT_LOOK[0]) if offer.restart else 0
    if course.cost_s(0, children) > LEAVING_OUT_SHARE * course.plan.budget_s:
        return True
    build_s = rebuild_s(course, offer)
    if build_s > LEAVING_OUT_SHARE * course.plan.budget_s / 2:
        return True
    mode = _where_it_shows(course, offer)
    return course.left_s() < course.cost_s(FEWEST_SEGMENTS if children == 0 else LOOK_SEGMENTS, children, build_s, mode)


def last_comparison(course: Course) -> Steps[Trial | None]:
    """The whole against the plain script, side by side in the real loop; None where nothing is kept."""
    while course.whole:
        course.stage = "final"
        looks, shape_b, ceiling = _as_can_be_paid(course)
        if not looks:
            course.ceilings = Ceilings(real=course.ceilings.real) if course.looked_at != course.whole else course.ceilings
            return None
        beside = (yield from _lower_ceiling(course)) if ceiling else None
        if not course.whole:
            return None  # it broke while it was looked at
        course.pending = segments_for(looks[0]) + (looks[0] if beside is not None else 0)
        question = Question(a={}, b=course.whole, mode=Mode.REAL, suspect=Suspect.NEITHER, looks=looks, worth=None)
        question.shape, question.shape_b, question.beside = Shape(bounded=shape_b is not None), shape_b, beside
        trial = yield from held(course, question)
        if trial is None:
            continue
        if course.looked_at != course.whole:
            # Of what is handed over, not of something before it.
            course.ceilings = Ceilings()
            if room_s(course) > course.cost_s(LOOK_AGAIN, 1):
                yield from look(course)
        if beside is not None:
            course.reached = _reached(course, beside, trial)
        return trial
    return None


def _lower_ceiling(course: Course) -> Steps[Mode | None]:
    """Which of its two sides holds the whole up; None where neither can be measured."""
    if course.looked_at != course.whole:
        yield from look(course, 1)
    rates = {Mode.REPLAY_HOST: course.ceilings.with_copy, Mode.SUPPLY: course.ceilings.supply}
    known = {mode: rate for mode, rate in rates.items() if isinstance(rate, float)}
    return min(known, key=lambda mode: known[mode], default=None)


def _reached(course: Course, ceiling: Mode, trial: Trial) -> Reached | None:
    """How near the tuned loop came to its ceiling, which is from now on what was measured beside it."""
    if not trial.beside:
        return None
    found = compare(trial.beside, course.noise.of(ceiling), FINAL_LOOKS)
    rate = sum(pair.a for pair in trial.beside) / len(trial.beside)
    course.ceilings = replace(course.ceilings, **{"supply" if ceiling is Mode.SUPPLY else "with_copy": rate})
    return Reached(ceiling=ceiling, rate=rate, ratio=found.ratio, lower=found.lower, upper=found.upper, pairs=found.pairs)


def _as_can_be_paid(course: Course) -> tuple[tuple[int, ...], Shape | None, bool]:
    """Looks, how the changed arm is asked, and whether its lower ceiling is measured beside it. No looks where there is no
    time: what is kept was judged piece by piece, and a gain of the whole without an interval is no figure."""
    size = course.whole.get("batch_size")
    if size is not None:  # a fresh child for each pair, and longer steps: as long as there is time; it ends with the budget
        enough = last_pairs(course, int(size)) >= FEWEST_FINAL_PAIRS
        return (FINAL_LOOKS, last_shape(course, int(size)), False) if enough else ((), None, False)
    room, restarts = room_s(course) + OVERTIME * course.plan.budget_s, bool(restart_values(course.plan, course.whole))
    if course.has_short_last_comparison:
        pairs = room // max(1e-9, course.final_s(restarts, beside=False) / FINAL_PAIRS)
        return ((FEWEST_FINAL,) if pairs >= FEWEST_FINAL else ()), None, False
    for ceiling, fewest in ((True, FINAL_PAIRS - 1), (False, FEWEST_FINAL)):
        looks = 2 if ceiling and course.looked_at != course.whole else 0
        looking_s = looks * (course.hot_s() + course.hot_s(course.compute_mode))
        pairs = (room - looking_s) // max(1e-9, course.final_s(restarts, ceiling) / FINAL_PAIRS)
        if pairs >= fewest:
            return (FINAL_LOOKS if pairs >= FINAL_PAIRS - 1 else (FEWEST_FINAL,)), None, ceiling
    return (), None, False


def take_all_back(course: Course, trial: Trial, unclear: bool) -> None:
    """`unclear`: a gain worth having was not ruled out, only not shown."""
    found = trial.comparison
    code, figures = "whole-not-faster", {"gain": percent(found.ratio) if found is not None else 0.0}
    if unclear and found is not None and isinstance(found.lower, float) and isinstance(found.upper, float):
        noise = round(100 * found.noise_floor, 1)
        code, figures = "whole-unclear", {**figures, "low": percent(found.lower), "high": percent(found.upper), "noise": noise}
    elif unclear:
        code, figures = "whole-too-little", {**figures, "pairs": len(trial.pairs)}
    for knob in list(course.order):
        seen = (found, Mode.REAL) if found is not None else None
        course.decide(course.offer(knob), course.whole[knob], code, dict(figures), seen)
        course.remove(knob)
