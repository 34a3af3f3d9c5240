"""Knobs of the input side, in the real loop, until the loader gives more than the compute side takes."""

from __future__ import annotations

from flatout.base.records import Missing, replace
from flatout.knobs.model import Bound
from flatout.tune.search.arm_order import LOOK_SEGMENTS, TURN_S, Shape, epochs_s, segments_for, workers_of
from flatout.tune.search.baseline import HARDLY, for_very_few, look, sturdy, waits
from flatout.tune.search.comparison import WORTH
from flatout.tune.search.compile_order import GRAPHS, build_guess_s
from flatout.tune.search.compute_knobs import (
    COPYING,
    consider,
    copying_offers,
    each_value,
    graphs_offered,
    is_compute,
    together,
)
from flatout.tune.search.questions_and_answers import BatchGoal, Decision, Mode, Offer, Params, Verdict
from flatout.tune.search.search_state import FEWEST_SEGMENTS, Course, Steps
from flatout.tune.search.worker_search import SPARE, by_supply, climb, one_rung

WALL = 0.9  # supply below this share of demand: a faster compute side would only wait longer
CONTENDED = 0.85  # of the floor, while the loader could give more: workers and loop stand in each other's way


# What shows at the turn of epochs, or in the evenness of the supply.
OF_WORKERS = ("persistent_workers", "prefetch_factor")
EPOCHS = 1
TURN_SHARE = 0.1  # of a segment over an epoch: a turn that takes so much comes before what evens out the copy
NOT_JUDGED_BESIDE_WORKERS = ("not-launch-bound", "no-time")


def workers_first(course: Course) -> Steps[None]:
    """Of a loop that waits for its input; what gives less comes when it is known how much is wanted."""
    course.stage = "input"
    offer = next((offer for offer in course.offers() if offer.knob == "workers"), None)
    if offer is not None:
        yield from _match_workers(course, offer)
    if workers_of(course.plan, course.whole) > course.plan.workers and course.compute_mode is Mode.REPLAY_HOST:
        yield from _see_contention(course)


def workers_at_last(course: Course) -> Steps[None]:
    """What was kept back for leaving knobs out may be left over: then more workers, for which there was no time, are tried."""
    offer = next((offer for offer in course.offers() if offer.knob == "workers"), None)
    before = course.decisions.get(("workers", "more"))
    if offer is None or before is None or before.code != "no-time":
        return
    course.stage = course.stage if course.whole else "again"
    if course.left_s() < course.cost_s(FEWEST_SEGMENTS + 2):
        return
    course.decisions.pop(("workers", "more"))
    yield from _match_workers(course, offer)


def _see_contention(course: Course) -> Steps[None]:
    """Whether loop and workers stand in each other's way: beside them the loop does less than on kept batches, and not for want
    of data. Then kept batches do not show what its knobs give."""
    rates = []
    for _ in range(2):
        result = yield from sturdy(course, Mode.REPLAY_HOST)
        if isinstance(result.rate, float):
            rates.append(result.rate)
    if not rates:
        return
    course.ceilings = replace(course.ceilings, with_copy=sum(rates) / len(rates))
    ceilings = course.ceilings
    course.contended = waits(ceilings.real, ceilings.with_copy, CONTENDED) and _has_spare(course)


def input_knobs(course: Course) -> Steps[None]:
    course.stage = "input"
    offers = [offer for offer in course.offers() if not is_compute(offer) and offer.knob != "batch_size"]
    workers = next((offer for offer in offers if offer.knob == "workers"), None)
    others = [offer for offer in offers if offer.knob != "workers" and not _copying_is_judged(course, offer)]
    if workers is not None:
        yield from _match_workers(course, workers)
    yield from relieve(course)
    others.sort(key=lambda offer: not _turns_weigh(course, offer))
    before = dict(course.whole)
    for index, offer in enumerate(others):
        course.pending = LOOK_SEGMENTS * (len(others) - index)
        if offer.knob == "persistent_workers" and workers_of(course.plan, course.whole):
            yield from _over_epochs(course, offer)
        elif _may_help(course, offer):
            yield from each_value(course, offer, Mode.REAL)
        else:
            _skip(course, offer)
    if workers is not None:
        yield from _fewer_workers(course, workers)
    # A faster copy is a higher demand: the number of workers is asked for once more.
    if workers is not None and course.whole != before and course.left_s() > course.cost_s(LOOK_SEGMENTS + 5):
        yield from look(course)
        yield from _match_workers(course, workers)


def _copying_is_judged(course: Course, offer: Offer) -> bool:
    return offer.knob in COPYING and all(course.judged(offer.knob, value) for value in offer.values)


def _match_workers(course: Course, offer: Offer) -> Steps[None]:
    # At first; when the compute side has had its knobs, the loop that stood in their way may be another one.
    crowded = course.contended and _has_spare(course) and course.demand_may_grow
    waiting = _waiting(course) and not crowded
    if waiting or (course.compute_mode is Mode.REAL and _could_bring(course) > WORTH):
        yield from _more_workers(course, offer)
    else:
        _skip(course, offer)


def _could_bring(course: Course) -> float:
    """The gain if the loop never waited for a batch: no setting of the input side brings more."""
    return course.input_share / max(1e-9, 1 - course.input_share)


def relieve(course: Course) -> Steps[None]:
    """Beside its workers the loop does less than either side alone, and lacks no data: then it is the host's own work that
    takes so long there. Graphs save it, also where on kept batches the device was always busy."""
    if not waits(course.ceilings.real, course.ceilings.with_copy, CONTENDED) or not _has_spare(course):
        return
    for offer in graphs_offered(course):
        (value,) = offer.values
        before = course.decisions.get((offer.knob, value))
        if course.whole.get(offer.knob) in GRAPHS or (before is not None and before.code not in NOT_JUDGED_BESIDE_WORKERS):
            continue
        course.contended = True
        decision = yield from consider(course, offer, value, Mode.REAL, build_guess_s(course, offer, value), FEWEST_SEGMENTS)
        if decision.verdict is Verdict.KEPT:
            yield from look(course)


def _has_spare(course: Course) -> bool:
    """What the loop lacks is not data."""
    return waits(course.ceilings.real, course.ceilings.supply, 1 / SPARE)


def aid_compute(course: Course) -> Steps[None]:
    """Where batches cannot be replayed, the compute side is judged in the real loop: with workers to spare, or the input side
    hides what it gains. How many are kept is decided afterwards."""
    offer = next((offer for offer in course.offers() if offer.knob == "workers"), None)
    now = workers_of(course.plan, course.whole)
    plenty = min(course.plan.worker_cap, 4 * max(1, now))
    hides = plenty > now and _could_bring(course) > WORTH and not for_very_few(course)
    if course.compute_mode is not Mode.REAL or offer is None or not hides:
        return
    rate = yield from one_rung(course, offer, plenty, Mode.REAL)
    real = course.ceilings.real
    if rate is not None and isinstance(real, float) and rate > HARDLY * real:
        course.aid = {"workers": str(plenty)}


def input_is_the_wall(course: Course) -> bool:
    """Whether the loop gets about all that the loader can give, and the compute side could take more: then nothing else helps.

    Where the loader alone could not be measured: whether even with all the workers allowed the compute side waits. Without
    workers both sides add up, and each of them counts.
    """
    ceilings = course.ceilings
    if not workers_of(course.plan, course.whole) or not waits(ceilings.real, ceilings.with_copy, WALL):
        return False
    return isinstance(ceilings.supply, Missing) or not waits(ceilings.real, ceilings.supply, WALL)


def skip_behind_the_wall(course: Course) -> None:
    ceilings = course.ceilings
    grown = [offer for offer in course.plan.offers if offer.knob == "batch_size" and course.plan.batch is BatchGoal.GROW]
    for offer in [*course.offers(), *grown]:
        if is_compute(offer) or (offer in grown and offer.knob not in course.whole):
            for value in offer.values or [str(course.plan.batch_size)]:
                if course.closed(offer.knob, value) is not None:
                    continue
                figures: Params = {"supply": _told(ceilings.real), "demand": _told(ceilings.with_copy)}
                course.decide(offer, value, "input-is-the-wall", figures)


def _waiting(course: Course) -> bool:
    return waits(course.ceilings.real, course.ceilings.with_copy)


def _over_epochs(course: Course, offer: Offer) -> Steps[None]:
    """Workers that stay alive are seen where one epoch turns into the next, and nowhere else."""
    for value in offer.values:
        if course.whole.get(offer.knob) == value:
            continue
        if _live_anyway(course):
            course.decide(offer, value, "workers-live")
        elif not course.spans_epochs or course.plan.epoch_steps is None:
            course.decide(offer, value, "no-epochs" if course.spans_epochs else "only-in-tune")
        elif epochs_s(course.plan, course.step_s, EPOCHS) > course.plan.budget_s and not course.tried(offer.knob, value):
            course.decide(offer, value, "long-epochs")  # one turn in so long a time costs nothing worth saving
        else:
            yield from consider(course, offer, value, Mode.REAL, segments=FEWEST_SEGMENTS, shape=Shape(epochs=EPOCHS))


def _live_anyway(course: Course) -> bool:
    """Workers of the agent's do, where their turn is known; the knob keeps only those of which nothing can be told."""
    return "workers" in course.whole and course.turns_known


def _turns_weigh(course: Course, offer: Offer) -> bool:
    """Starting workers anew takes a good part of each epoch: nothing else of the input side promises as much for its time."""
    if offer.knob != "persistent_workers" or not workers_of(course.plan, course.whole) or _live_anyway(course):
        return False
    return 0 < epochs_s(course.plan, course.step_s, EPOCHS) <= TURN_S / TURN_SHARE


def _may_help(course: Course, offer: Offer) -> bool:
    if offer.knob in OF_WORKERS and not workers_of(course.plan, course.whole):
        return False
    if offer.knob == "prefetch_factor" and _supply_reached(course):
        return False
    if course.compute_mode is Mode.REAL:
        return Bound.COPY in offer.cures or _could_bring(course) > WORTH
    copying = waits(course.ceilings.with_copy, course.ceilings.without_copy)
    return (Bound.INPUT in offer.cures and _waiting(course)) or (Bound.COPY in offer.cures and (copying or _waiting(course)))


def _skip(course: Course, offer: Offer) -> None:
    """Says why a knob is not tried, unless an earlier trial said more."""
    ceilings = course.ceilings
    for value in offer.values or ["more"]:
        if course.tried(offer.knob, value) or offer.knob in course.whole:
            continue
        if offer.knob in OF_WORKERS and not workers_of(course.plan, course.whole):
            course.decide(offer, value, "no-workers")
        elif offer.knob == "prefetch_factor" and _supply_reached(course):
            real, supply = _told(ceilings.real), _told(ceilings.supply)
            course.decide(offer, value, "supply-reached", {"real": real, "supply": max(real, supply)})
        elif Bound.INPUT in offer.cures:
            real = _told(ceilings.real)
            demand = _told(ceilings.with_copy) or round(real * (1 + _could_bring(course)), 1)
            course.decide(offer, value, "loop-not-waiting", {"real": real, "demand": max(real, demand)})
        else:
            figures = {"with_copy": _told(ceilings.with_copy), "without_copy": _told(ceilings.without_copy)}
            course.decide(offer, value, "copy-hidden", dict(figures))


def _supply_reached(course: Course) -> bool:
    """A longer queue evens out bursts; it makes no batch cheaper."""
    ceilings = course.ceilings
    return isinstance(ceilings.supply, float) and not waits(ceilings.real, ceilings.supply, WALL)


def _more_workers(course: Course, offer: Offer) -> Steps[None]:
    """Up the ladder by single segments, then the best rung against the whole: chosen on other figures than it is judged by."""
    if course.left_s() < course.cost_s(FEWEST_SEGMENTS + 2):
        course.no_time(offer, "more", course.cost_s(FEWEST_SEGMENTS + 2))
        return
    course.trying = ["workers"]
    course.pending = LOOK_SEGMENTS + 4
    best = yield from (by_supply(course, offer) if course.supply_tells and course.supplies else climb(course, offer))
    if best is None or best == workers_of(course.plan, course.whole):
        return
    decision = yield from _consider_workers(course, offer, str(best))
    if decision is None or decision.verdict is not Verdict.KEPT:
        return
    if course.demand_may_grow and best in course.supplies and isinstance(decision.ratio, float):
        real = course.ceilings.real
        real = real * decision.ratio if isinstance(real, float) else real
        course.step_s = course.step_s / decision.ratio if isinstance(course.step_s, float) else course.step_s
        course.ceilings = replace(course.ceilings, real=real, supply=course.supplies[best])
        return  # a look comes when the compute side has had its turn
    course.pending = segments_for(2) + 1
    yield from look(course)


def _consider_workers(course: Course, offer: Offer, value: str) -> Steps[Decision | None]:
    """With pinning and copies that do not wait, where these can be had: what comes from workers lies in shared memory, and only
    together do they take its copy out of the loop. Whether each of them earns its place is asked at the end."""
    copying = copying_offers(course) if course.demand_may_grow else []
    if not copying or course.closed(offer.knob, value) is not None:
        return (yield from consider(course, offer, value, Mode.REAL, segments=FEWEST_SEGMENTS))
    yield from together(course, [replace(offer, values=[value]), *copying], Mode.REAL, FEWEST_SEGMENTS)
    if offer.knob in course.whole:
        return course.decisions.get((offer.knob, value))
    return (yield from consider(course, offer, value, Mode.REAL, segments=FEWEST_SEGMENTS))


def _fewer_workers(course: Course, offer: Offer) -> Steps[None]:
    """Workers take cores from the loop itself: where half of them would supply it, half may be faster; and where the script has
    more than there are cores for, as many as there are."""
    own, cap, now = course.plan.workers, course.plan.worker_cap, workers_of(course.plan, course.whole)
    if now == own and own > cap > 0:
        yield from consider(course, offer, str(cap), Mode.REAL)
        return
    half = now // 2
    supply, real = course.supplies.get(half), course.ceilings.real
    if half > course.plan.workers and supply is not None and isinstance(real, float) and supply > HARDLY * real:
        yield from consider(course, offer, str(half), Mode.REAL)


def _told(rate: float | Missing) -> float:
    return round(rate, 1) if isinstance(rate, float) else 0.0
