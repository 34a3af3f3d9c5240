"""How many workers: up and down a ladder, by what the loader gives with so many, or where that cannot be told by the loop."""

from __future__ import annotations

import math

from flatout.base.records import Missing, Struct, replace
from flatout.tune.search.arm_order import LOOK_SEGMENTS, workers_of
from flatout.tune.search.baseline import HARDLY, receiving, waits
from flatout.tune.search.knob_verdict import unapplied
from flatout.tune.search.questions_and_answers import Mode, Offer, Outcome, OutcomeState, Values
from flatout.tune.search.search_state import FEWEST_SEGMENTS, Course, Steps

SPARE = 1.15  # supply for so much more than the demand: a loader delivers unevenly, and beside a training it gives less
GROWTH = 1.3  # the same while the compute side may still become faster
FETCHED_INLINE = 0.03  # of the time, if the loop fetches by itself: nothing to be saved
SCALES = 0.85  # of what as many workers more would give if none stood in another's way
MORE_THAN_CORES = 4
RUNG = 1.05  # a doubling that gives less has reached the end of the ladder
RUNG_BEYOND = 1.25  # the same for more workers than cores: those that wait give nearly twice as much, others give noise


class Rung(Struct, frozen=True):
    workers: int
    rate: float


def by_supply(course: Course, offer: Offer) -> Steps[int | None]:
    """The fewest workers whose supply exceeds the demand, with some to spare; or those that give most."""
    now = workers_of(course.plan, course.whole)
    demand = course.ceilings.with_copy
    enough = demand * (GROWTH if course.demand_may_grow else SPARE) if isinstance(demand, float) else float("inf")
    first = _first_rung(course, now, enough)
    best = yield from _upwards(course, offer, first, enough)
    if best is None and course.supply_tells:
        return None
    if best is None:
        return (yield from climb(course, offer))
    if best == first:
        best = yield from _downwards(course, offer, best, enough)
    best = _as_many_as_needed(course, best, enough)
    if best == now:
        course.decide(offer, "more", "no-more-supply", {"workers": now, "supply": _told(course.supplies[now])})
    return best


def workers_for(course: Course, rate: float | Missing) -> Steps[Values]:
    """As many as a loop of this rate would want, if these are more: before the input side has its turn, what is judged in the
    real loop would only be seen to wait."""
    offer = next((offer for offer in course.offers() if offer.knob == "workers"), None)
    now, before = workers_of(course.plan, course.whole), course.ceilings
    if offer is None or isinstance(rate, Missing) or not course.supply_tells or now not in course.supplies:
        return {}
    if not now and rate < FETCHED_INLINE * course.supplies[now]:
        return {}
    course.ceilings = replace(before, with_copy=rate)
    best = yield from by_supply(course, offer)
    course.ceilings = before
    if best is None or best <= now or beside_loader(course, rate, best) < RUNG * beside_loader(course, rate, now):
        return {}
    return {"workers": str(best)}


def beside_loader(course: Course, rate: float, workers: int) -> float:
    """What a loop of this rate on kept batches has beside its loader: without workers fetching and computing take turns, with
    them the slower side counts."""
    supply = course.supplies[workers]
    return min(rate, supply) if workers else 1 / (1 / rate + 1 / supply)


def _as_many_as_needed(course: Course, best: int, enough: float) -> int:
    """Between the rungs, in proportion: every worker more takes a core from the loop itself. Not while the compute side may
    become several times as fast: those that were saved would be wanted again, and their trial costs more than they do."""
    supplies, now = course.supplies, workers_of(course.plan, course.whole)
    if best <= now or supplies[best] < enough or course.demand_may_grow:
        return best
    needed = math.ceil(best * enough / supplies[best])
    if max(now, best // 2) < needed < best:
        supplies[needed] = supplies[best] * needed / best
        return needed
    return best


def _first_rung(course: Course, now: int, enough: float) -> int:
    """As many as would be enough if none stood in another's way, by doubling; or half of the cores, should these be too few."""
    own, rung = course.supplies[now] / max(1, now), max(_least(course), 1 << now.bit_length())
    while course.demand_may_grow and 4 * rung <= course.plan.worker_cap and rung * own < enough:
        rung *= 2
    return rung


def _least(course: Course) -> int:
    """The first number to try: of two cores the loop itself wants one."""
    return 1 if course.plan.worker_cap <= 2 else 2


def _upwards(course: Course, offer: Offer, first: int, enough: float) -> Steps[int | None]:
    """The rung that gives most, doubling until there is enough or no more to be had; None where drawing does not tell."""
    plan, supplies = course.plan, course.supplies
    now = workers_of(plan, course.whole)
    # Without workers nothing is fetched while something is computed: then the first rung wins by that alone.
    best, most_given = now, supplies[now] if now else 0.0
    # Of as many as cores it is not known yet whether they need one each.
    beyond = now >= plan.worker_cap and course.most_supply is None
    workers, missed, most = now, 0, plan.worker_cap * (MORE_THAN_CORES if beyond else 1)
    while most_given < enough and missed < (2 if workers < plan.worker_cap else 1) and workers < most:
        workers, before = min(most, first if workers == now else 2 * workers), workers
        rate = yield from _supply_of(course, offer, workers)
        if rate is None and best == now and course.tried(offer.knob, str(workers)):
            # Perhaps it is the drawing that failed and not the workers: the real loop is asked.
            course.supply_tells = False
            course.decisions.pop((offer.knob, str(workers)), None)
            return None
        if rate is None:
            break  # no time, or so many cannot be had
        enough_more = most_given * (RUNG if workers <= plan.worker_cap else RUNG_BEYOND)
        if rate <= enough_more:
            rate = yield from _once_more(course, offer, workers)  # a single segment may mislead, and all the rest follows it
        if rate > enough_more:
            best, most_given, missed = workers, rate, 0
        else:
            missed += 1
        # Workers that wait for disks and networks need no core each.
        scales = rate > SCALES * supplies[before] * workers / max(1, before)
        if workers == plan.worker_cap and scales and waits(rate, course.ceilings.with_copy, SPARE):
            most = MORE_THAN_CORES * plan.worker_cap
    if (
        missed >= 2
        or (missed and workers >= plan.worker_cap)
        or workers >= most
        or course.closed(offer.knob, str(workers)) is not None
    ):
        course.most_supply = most_given
    return best


def _downwards(course: Course, offer: Offer, best: int, enough: float) -> Steps[int]:
    """A first rung so high may be too high: workers that stand in each other's way give no more than fewer of them."""
    now = workers_of(course.plan, course.whole)
    own = course.supplies[now] / max(1, now)
    while best > 2 * max(1, now) and course.supplies[best] < min(enough, SCALES * best * own):
        rate = yield from _supply_of(course, offer, best // 2)
        if rate is None or RUNG * rate < course.supplies[best]:
            break
        best //= 2
    return best


def _supply_of(course: Course, offer: Offer, workers: int) -> Steps[float | None]:
    """Measured once for each number and way of receiving; None where it cannot be had, or there is no time."""
    if course.supplied_with.get(workers) != receiving(course):
        if course.left_s() < course.cost_s(FEWEST_SEGMENTS + 1):
            return None
        rate = yield from one_rung(course, offer, workers, Mode.SUPPLY)
        if rate is None:
            return None
        course.supplies[workers] = rate
        course.supplied_with[workers] = receiving(course)
    return course.supplies[workers]


def _once_more(course: Course, offer: Offer, workers: int) -> Steps[float]:
    first = course.supplies[workers]
    if course.left_s() > course.cost_s(FEWEST_SEGMENTS + 1):
        second = yield from one_rung(course, offer, workers, Mode.SUPPLY)
        course.supplies[workers] = first if second is None else (first + second) / 2  # the better of two would be a bias
    return course.supplies[workers]


def climb(course: Course, offer: Offer) -> Steps[int | None]:
    now = workers_of(course.plan, course.whole)
    start = course.ceilings.real
    best = Rung(now, start if isinstance(start, float) else 0.0)
    cap, missed, workers, worked = course.plan.worker_cap, 0, now, None
    while workers < cap and missed < 2 and not _supplied(course, best.rate) and course.left_s() > course.cost_s(LOOK_SEGMENTS):
        workers = min(cap, 2 * workers if workers else _least(course))
        rate = yield from one_rung(course, offer, workers, Mode.REAL)
        if rate is None:
            cap, missed = workers - 1, 2  # so many cannot be had
            continue
        worked = workers
        if rate > RUNG * best.rate:
            best, missed = Rung(workers, rate), 0
        else:
            missed += 1  # once more: one worker does what the loop did itself, and a single segment may mislead
    half_way = best.workers + best.workers // 2
    if missed and best.workers > now and half_way <= cap and half_way < workers and not _supplied(course, best.rate):
        rate = yield from one_rung(course, offer, half_way, Mode.REAL)
        if rate is not None and rate > RUNG * best.rate:
            best = Rung(half_way, rate)
    # Where nothing stood out, the last rung is judged all the same, so that the answer has an interval.
    return best.workers if best.workers > now else worked


def one_rung(course: Course, offer: Offer, workers: int, mode: Mode) -> Steps[float | None]:
    """One segment with so many workers; None, and a decision, where it cannot be done."""
    value = str(workers)
    if course.closed(offer.knob, value) is not None:
        return None
    change = {**course.whole, "workers": value}
    result = yield from course.ask(change, mode)
    if result.fault and course.left_s() > result.took_s:
        result = yield from course.ask(change, mode, fresh=True)
    outcome = result.outcomes.get("workers")
    if result.fault:
        course.decide(offer, value, "fault", {"status": result.status.value})
    elif outcome is None or outcome.state != "applied" or isinstance(result.rate, Missing):
        said = Outcome(state=OutcomeState.REFUSED, code=result.code, details=result.details) if result.code else outcome
        unapplied(course, offer, value, said or Outcome(state=OutcomeState.REFUSED, code="no-report"))
    else:
        return result.rate
    return None


def _supplied(course: Course, rate: float) -> bool:
    demand = course.ceilings.with_copy
    return isinstance(demand, float) and rate >= HARDLY * demand


def _told(rate: float | Missing) -> float:
    return round(rate, 1) if isinstance(rate, float) else 0.0
