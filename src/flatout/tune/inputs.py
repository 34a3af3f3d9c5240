"""Knobs of the input side, in the real loop, until the loader gives more than the compute side takes."""

from __future__ import annotations

import math

from flatout.base.records import Missing, Struct, replace
from flatout.knobs.model import Bound
from flatout.tune.baseline import HARDLY, look, sturdy, waits
from flatout.tune.compute import COPYING, LOOK_SEGMENTS, consider, copying_offers, each_value, is_compute, together
from flatout.tune.course import FEWEST_SEGMENTS, Course, Steps
from flatout.tune.model import Decision, Mode, Offer, Params, Verdict
from flatout.tune.schedule import Shape, segments_for, workers_of

WALL = 0.9  # supply below this share of demand: a faster compute side would only wait longer
CONTENDED = 0.85  # of the floor, while the loader could give more: workers and loop stand in each other's way
SPARE = 1.15  # supply for so much more than the demand: a loader delivers unevenly, and beside a training it gives less
GROWTH = 1.3  # the same while the compute side may still become faster
SCALES = 0.85  # of what as many workers more would give if none stood in another's way
MORE_THAN_CORES = 4
RUNG = 1.05  # a doubling that gives less has reached the end of the ladder


# What shows at the turn of epochs, or in the evenness of the supply.
OF_WORKERS = ("persistent_workers", "prefetch_factor")
EPOCHS = 1


class Rung(Struct, frozen=True):
    workers: int
    rate: float


def workers_first(course: Course) -> Steps[None]:
    """Of a loop that waits for its input; what gives less comes when it is known how much is wanted."""
    course.stage = "input"
    offer = next((offer for offer in course.offers() if offer.knob == "workers"), None)
    if offer is not None:
        yield from _match_workers(course, offer)
    if workers_of(course.plan, course.whole) > course.plan.workers and course.compute_mode is Mode.REPLAY_HOST:
        yield from _see_contention(course)


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
    waiting = _waiting(course) and not (course.contended and _has_spare(course))
    if waiting or course.compute_mode is Mode.REAL:
        yield from _more_workers(course, offer)
    else:
        _skip(course, offer)


def _has_spare(course: Course) -> bool:
    """What the loop lacks is not data."""
    return waits(course.ceilings.real, course.ceilings.supply, 1 / SPARE)


def aid_compute(course: Course) -> Steps[None]:
    """Where batches cannot be replayed, the compute side is judged in the real loop: with workers to spare, or the input side
    hides what it gains. How many are kept is decided afterwards."""
    offer = next((offer for offer in course.offers() if offer.knob == "workers"), None)
    now = workers_of(course.plan, course.whole)
    plenty = min(course.plan.worker_cap, 4 * max(1, now))
    if course.compute_mode is not Mode.REAL or offer is None or plenty <= now:
        return
    rate = yield from _rung(course, offer, plenty, Mode.REAL)
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
    for offer in course.offers():
        if is_compute(offer):
            for value in offer.values:
                figures: Params = {"supply": _told(ceilings.real), "demand": _told(ceilings.with_copy)}
                course.decide(offer, value, "input-is-the-wall", figures)


def _waiting(course: Course) -> bool:
    return waits(course.ceilings.real, course.ceilings.with_copy)


def _over_epochs(course: Course, offer: Offer) -> Steps[None]:
    """Workers that stay alive are seen where one epoch turns into the next, and nowhere else."""
    for value in offer.values:
        if course.whole.get(offer.knob) == value:
            continue
        if not course.spans_epochs or course.plan.epoch_steps is None:
            course.decide(offer, value, "no-epochs" if course.spans_epochs else "only-in-tune")
        else:
            yield from consider(course, offer, value, Mode.REAL, segments=FEWEST_SEGMENTS, shape=Shape(epochs=EPOCHS))


def _may_help(course: Course, offer: Offer) -> bool:
    if offer.knob in OF_WORKERS and not workers_of(course.plan, course.whole):
        return False
    if offer.knob == "prefetch_factor" and _supply_reached(course):
        return False
    if course.compute_mode is Mode.REAL:
        return True
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
            course.decide(offer, value, "supply-reached", {"real": _told(ceilings.real), "supply": _told(ceilings.supply)})
        elif Bound.INPUT in offer.cures:
            course.decide(offer, value, "loop-not-waiting", {"real": _told(ceilings.real), "demand": _told(ceilings.with_copy)})
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
    best = yield from (_by_supply(course, offer) if course.supply_tells and course.supplies else _climb(course, offer))
    if best is None or best == workers_of(course.plan, course.whole):
        return
    decision = yield from _consider_workers(course, offer, str(best))
    if decision is None or decision.verdict is not Verdict.KEPT:
        return
    if course.demand_may_grow and best in course.supplies and isinstance(decision.ratio, float):
        real = course.ceilings.real
        real = real * decision.ratio if isinstance(real, float) else real
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


def _by_supply(course: Course, offer: Offer) -> Steps[int | None]:
    """The fewest workers whose supply exceeds the demand, with some to spare; or those that give most."""
    now = workers_of(course.plan, course.whole)
    demand = course.ceilings.with_copy
    enough = demand * (GROWTH if course.demand_may_grow else SPARE) if isinstance(demand, float) else float("inf")
    first = _first_rung(course, now, enough)
    best = yield from _upwards(course, offer, first, enough)
    if best is None and course.supply_tells:
        return None
    if best is None:
        return (yield from _climb(course, offer))
    if best == first:
        best = yield from _downwards(course, offer, best, enough)
    best = _as_many_as_needed(course, best, enough)
    if best == now:
        course.decide(offer, "more", "no-more-supply", {"workers": now, "supply": _told(course.supplies[now])})
    return best


def _as_many_as_needed(course: Course, best: int, enough: float) -> int:
    """Between the rungs, in proportion: every worker more takes a core from the loop itself."""
    supplies, now = course.supplies, workers_of(course.plan, course.whole)
    if best <= now or supplies[best] < enough:
        return best
    needed = math.ceil(best * enough / supplies[best])
    if max(now, best // 2) < needed < best:
        supplies[needed] = supplies[best] * needed / best
        return needed
    return best


def _first_rung(course: Course, now: int, enough: float) -> int:
    """As many as would be enough if none stood in another's way, by doubling; or half of the cores, should these be too few."""
    own, rung = course.supplies[now] / max(1, now), max(2, 1 << now.bit_length())
    while course.demand_may_grow and 4 * rung <= course.plan.worker_cap and rung * own < enough:
        rung *= 2
    return rung


def _upwards(course: Course, offer: Offer, first: int, enough: float) -> Steps[int | None]:
    """The rung that gives most, doubling until there is enough or no more to be had; None where drawing does not tell."""
    plan, supplies = course.plan, course.supplies
    now = workers_of(plan, course.whole)
    # Without workers nothing is fetched while something is computed: then the first rung wins by that alone.
    best, most_given = now, supplies[now] if now else 0.0
    workers, missed, most = now, 0, plan.worker_cap
    while most_given < enough and missed < 2 and workers < most:
        workers, before = min(most, first if workers == now else 2 * workers), workers
        rate = yield from _supply_of(course, offer, workers)
        if rate is None and best == now and course.tried(offer.knob, str(workers)):
            # Perhaps it is the drawing that failed and not the workers: the real loop is asked.
            course.supply_tells = False
            course.decisions.pop((offer.knob, str(workers)), None)
            return None
        if rate is None:
            break  # no time, or so many cannot be had
        if rate > RUNG * most_given:
            best, most_given, missed = workers, rate, 0
        else:
            missed += 1
        # Workers that wait for disks and networks need no core each.
        scales = rate > SCALES * supplies[before] * workers / max(1, before)
        if workers == plan.worker_cap and scales and waits(rate, course.ceilings.with_copy, SPARE):
            most = MORE_THAN_CORES * plan.worker_cap
    if missed >= 2 or workers >= most or course.closed(offer.knob, str(workers)) is not None:
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
    """Measured once for each number; None where it cannot be had, or there is no time."""
    if workers not in course.supplies:
        if course.left_s() < course.cost_s(FEWEST_SEGMENTS + 1):
            return None
        rate = yield from _rung(course, offer, workers, Mode.SUPPLY)
        if rate is None:
            return None
        course.supplies[workers] = rate
    return course.supplies[workers]


def _climb(course: Course, offer: Offer) -> Steps[int | None]:
    now = workers_of(course.plan, course.whole)
    start = course.ceilings.real
    best = Rung(now, start if isinstance(start, float) else 0.0)
    cap, missed, workers, worked = course.plan.worker_cap, 0, now, None
    while workers < cap and missed < 2 and not _supplied(course, best.rate) and course.left_s() > course.cost_s(LOOK_SEGMENTS):
        workers = min(cap, 2 * workers if workers else min(2, cap))
        rate = yield from _rung(course, offer, workers, Mode.REAL)
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
        rate = yield from _rung(course, offer, half_way, Mode.REAL)
        if rate is not None and rate > RUNG * best.rate:
            best = Rung(half_way, rate)
    # Where nothing stood out, the last rung is judged all the same, so that the answer has an interval.
    return best.workers if best.workers > now else worked


def _fewer_workers(course: Course, offer: Offer) -> Steps[None]:
    """Workers take cores from the loop itself: where half of them would supply it, half may be faster."""
    half = workers_of(course.plan, course.whole) // 2
    supply, real = course.supplies.get(half), course.ceilings.real
    if half > course.plan.workers and supply is not None and isinstance(real, float) and supply > HARDLY * real:
        yield from consider(course, offer, str(half), Mode.REAL)


def _rung(course: Course, offer: Offer, workers: int, mode: Mode) -> Steps[float | None]:
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
        why = result.code or (outcome.code if outcome else "no-report")
        course.decide(offer, value, "refused", {"why": why or "refused"})
    else:
        return result.rate
    return None


def _supplied(course: Course, rate: float) -> bool:
    demand = course.ceilings.with_copy
    return isinstance(demand, float) and rate >= HARDLY * demand


def _told(rate: float | Missing) -> float:
    return round(rate, 1) if isinstance(rate, float) else 0.0
