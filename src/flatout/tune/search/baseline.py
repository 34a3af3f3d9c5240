"""The look at the whole: what the loop does, what its compute side could do, how much it all scatters, and what holds it up."""

from __future__ import annotations

from flatout.base.records import Missing, replace
from flatout.knobs.model import Bound
from flatout.tune.search.arm_order import USUAL, Shape, a_first, workers_of
from flatout.tune.search.comparison import STANDING_TRIES
from flatout.tune.search.device_or_host_bound import pace_of
from flatout.tune.search.failing_knob import recover
from flatout.tune.search.questions_and_answers import Ceilings, Mode, SegmentResult, Status, Values
from flatout.tune.search.search_state import FEW_SEGMENTS, Course, Steps
from flatout.tune.search.stop_reasons import StandingBrokenError

FIRST_LOOK_PAIRS = 4  # the baseline twice over, and again: its scatter is the noise of all that follows
LATER_LOOK_PAIRS = 2
SLOW_PAIRS = 1
MOST_OF_BUDGET = 0.25
LEAST_FIRST_S = 3.0
FIRST_SHARE = 1 / 12  # of the budget, for the first segment: until it has answered nobody knows how long a step takes
HELD_UP = 0.95  # of what the next side could do: below, that side is not the one that holds the loop up
HARDLY = 0.97
BUSY = 0.8
RECEIVING = ("pin_memory", "prefetch_factor")
INPUT_SHARE = 0.1  # of the time of a step, where no replay tells it better
VERY_FEW, MOSTLY = 16, 0.5  # segments: then the input side comes first only where the loop waits for most of its time


def baseline(course: Course) -> Steps[None]:
    course.stage = "baseline"
    course.pending = 2 * FIRST_LOOK_PAIRS + 1
    if course.fits_only:
        yield from _a_few_steps(course)
        return
    # What the first steps of a process pay for once must not look like noise.
    shape = Shape(limit_s=max(LEAST_FIRST_S, FIRST_SHARE * course.plan.budget_s))
    first = yield from sturdy(course, Mode.REAL, shape)
    course.step_s = first.step_s
    course.input_share = _share(first.phases, "input")
    course.for_few = course.plan.budget_s < FEW_SEGMENTS * course.hot_s()
    if course.sparing and course.input_share < (MOSTLY if for_very_few(course) else INPUT_SHARE):
        # Its own steps show all there is to see: kept batches would take as long, and the loader is not what it waits for.
        course.compute_mode, course.supply_tells, course.input_matched = Mode.REAL, False, True
        _this_is_it(course, first)
    else:
        yield from look(course, SLOW_PAIRS if course.sparing else FIRST_LOOK_PAIRS)
    course.bound_before = course.bound


def for_very_few(course: Course) -> bool:
    """Segments. Looks at both sides would take all of them, and the first one told what the loop waits for."""
    return course.plan.budget_s < VERY_FEW * course.hot_s()


def input_first(course: Course) -> bool:
    """Whether what the loop waits for is what gives most for its time."""
    return course.bound is Bound.INPUT and not (for_very_few(course) and course.input_share < MOSTLY)


def _this_is_it(course: Course, only: SegmentResult) -> None:
    """One segment is the look at the whole: the next is better spent on what may help."""
    course.ceilings = Ceilings(real=only.rate)
    course.looked_at = dict(course.whole)
    course.pace = pace_of(only)
    course.bound = bound_of(course.ceilings, course.pace.busy, only.phases)


def _a_few_steps(course: Course) -> Steps[None]:
    """How long a step takes, for those who only want to know how large it may be."""
    limit = max(LEAST_FIRST_S, FIRST_SHARE * course.plan.budget_s)
    result = yield from sturdy(course, Mode.REAL, Shape(longer=0.1, warm=2, steps=3, limit_s=limit))
    course.step_s = result.step_s
    course.ceilings = Ceilings(real=result.rate)
    course.looked_at = dict(course.whole)


def look(course: Course, pairs: int = LATER_LOOK_PAIRS) -> Steps[None]:
    """The real loop and the replayed one in turn, then once without the copy, and the loader by itself."""
    rates, last = yield from _in_turn(course, pairs)
    bare: float | Missing = Missing("no-replay")
    briefly = course.fits_only or (course.batch_to_come and course.spent_s > MOST_OF_BUDGET * course.plan.budget_s)
    if course.compute_mode is not Mode.REAL and not briefly and course.copies:
        bare = (yield from sturdy(course, Mode.REPLAY_DEVICE)).rate
    real = _mean(rates[Mode.REAL])
    supply: float | Missing = Missing("not-measured")
    if not briefly:
        supply = yield from supply_now(course, real)
    course.ceilings = Ceilings(real=real, with_copy=_mean(rates[Mode.REPLAY_HOST]), without_copy=bare, supply=supply)
    course.floors_seen = (course.ceilings.with_copy, bare)
    course.looked_at = dict(course.whole)
    told = last.get(Mode.REPLAY_HOST) or last.get(Mode.REAL)
    if told is not None:
        course.pace = pace_of(told)
    if Mode.REAL in last:
        course.step_s = last[Mode.REAL].step_s
        course.input_share = _share(last[Mode.REAL].phases, "input")
        course.bound = bound_of(course.ceilings, course.pace.busy, last[Mode.REAL].phases)


def _in_turn(course: Course, pairs: int) -> Steps[tuple[dict[Mode, list[float]], dict[Mode, SegmentResult]]]:
    """The rates of the real and the replayed loop, and the last result of each."""
    rates: dict[Mode, list[float]] = {Mode.REAL: [], Mode.REPLAY_HOST: []}
    ordinary: dict[Mode, list[float]] = {Mode.REAL: [], Mode.REPLAY_HOST: []}
    last: dict[Mode, SegmentResult] = {}
    for index in range(pairs):
        if index and course.stage == "baseline" and course.spent_s + _pair_s(course) > MOST_OF_BUDGET * course.plan.budget_s:
            break  # a slow loop must leave time for what it is looked at for
        order = (Mode.REAL, Mode.REPLAY_HOST) if a_first(index, False) else (Mode.REPLAY_HOST, Mode.REAL)
        for mode in order:
            if mode is not Mode.REAL and course.compute_mode is Mode.REAL:
                continue
            result = yield from sturdy(course, mode)
            if isinstance(result.rate, float):
                rates[mode].append(result.rate)
                last[mode] = result
            if isinstance(result.ordinary_rate, float):
                ordinary[mode].append(result.ordinary_rate)
    for mode, seen in ordinary.items():
        course.noise.saw_repeated(mode, seen)
    return rates, last


def _pair_s(course: Course) -> float:
    return course.hot_s(Mode.REAL) + (course.hot_s(Mode.REPLAY_HOST) if course.compute_mode is not Mode.REAL else 0.0)


def supply_now(course: Course, real: float | Missing) -> Steps[float | Missing]:
    """What the loader gives with as many workers as are kept: measured once for each number, and anew where batches are
    received in another way. No less than the loop gets."""
    workers = workers_of(course.plan, course.whole)
    if not course.supply_tells:
        return Missing("cannot-be-drawn")
    if course.supplied_with.get(workers) != receiving(course):
        result = yield from sturdy(course, Mode.SUPPLY)
        if isinstance(result.rate, Missing):
            course.supply_tells = False
            return Missing("cannot-be-drawn")
        course.supplies[workers] = result.rate
        course.supplied_with[workers] = receiving(course)
    if isinstance(real, float):
        course.supplies[workers] = max(real, course.supplies[workers])
    return course.supplies[workers]


def receiving(course: Course) -> Values:
    return {knob: value for knob, value in course.whole.items() if knob in RECEIVING}


def sturdy(course: Course, mode: Mode, shape: Shape = USUAL) -> Steps[SegmentResult]:
    """A segment of what is kept, which has to work: a few tries, then the guilty knob is taken back."""
    faults = 0
    while True:
        result = yield from course.ask(course.whole, mode, shape=shape)
        if result.status is Status.REFUSED and mode is not Mode.REAL:
            course.compute_mode = Mode.REAL if mode is Mode.REPLAY_HOST else course.compute_mode
            return result
        if not result.fault and isinstance(result.rate, float):
            return result
        faults += 1
        if faults >= STANDING_TRIES:
            if not (yield from recover(course, result.status, mode)):
                raise StandingBrokenError(result.status)
            faults = 0


def bound_of(ceilings: Ceilings, busy: float | Missing, phases: dict[str, float]) -> Bound | None:
    """What holds the loop up, from the outside in; None where nothing tells."""
    if waits(ceilings.real, ceilings.with_copy, HELD_UP):
        return Bound.INPUT
    if isinstance(ceilings.with_copy, Missing) and _share(phases, "input") > INPUT_SHARE:
        return Bound.INPUT
    if waits(ceilings.with_copy, ceilings.without_copy, HELD_UP):
        return Bound.COPY
    if isinstance(busy, Missing):
        return None
    return Bound.LAUNCH if busy < BUSY else Bound.COMPUTE


def raise_floor(course: Course, ratio: float | Missing) -> None:
    """The compute side became so much faster."""
    floor = course.ceilings.with_copy
    if isinstance(floor, float) and isinstance(ratio, float):
        course.ceilings = replace(course.ceilings, with_copy=floor * ratio)


def bare_floor(course: Course) -> float | Missing:
    """The floor without the copy, as it may be by now: the copy takes as long as when it was last looked at."""
    then, bare = course.floors_seen
    now = course.ceilings.with_copy
    if isinstance(then, Missing) or isinstance(bare, Missing) or isinstance(now, Missing):
        return Missing("not-measured")
    per_sample = 1 / now - max(0.0, 1 / then - 1 / bare)
    return 1 / per_sample if per_sample > 0 else float("inf")


def waits(rate: float | Missing, could: float | Missing, below: float = HARDLY) -> bool:
    return isinstance(rate, float) and isinstance(could, float) and rate < below * could


def _share(phases: dict[str, float], name: str) -> float:
    total = sum(phases.values())
    return phases.get(name, 0.0) / total if total > 0 else 0.0


def _mean(rates: list[float]) -> float | Missing:
    return sum(rates) / len(rates) if rates else Missing("not-measured")
