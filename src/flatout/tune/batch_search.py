"""The batch size, where it was asked for: probes in fresh children, then a longer proof in the real loop."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.measure.statistics import Answer
from flatout.tune.batch import BatchPolicy, BatchProbe, chosen, is_safe, next_size, safe_size, smaller_size
from flatout.tune.course import Course, Steps
from flatout.tune.judge import percent
from flatout.tune.model import BatchGoal, Mode, Offer, OutcomeState, Params, SegmentResult
from flatout.tune.recover import held
from flatout.tune.trial import Question

PROOF = 4  # times the length of a segment
PROOF_TRIES = 4
MOST_PROBES = 24


def batch_size(course: Course) -> Steps[None]:
    plan = course.plan
    offer = next((offer for offer in plan.offers if offer.knob == "batch_size"), None)
    if plan.batch is BatchGoal.KEEP or offer is None or plan.batch_size is None:
        return
    course.stage, course.trying = "batch", ["batch_size"]
    policy = BatchPolicy(
        goal=plan.batch,
        start=int(course.whole.get("batch_size", plan.batch_size)),
        largest=plan.batch_limit,
        memory_limit=plan.memory_limit,
        headroom=plan.headroom,
    )
    probes = yield from _probe_all(course, offer, policy)
    if probes is not None:
        yield from _take(course, offer, policy, probes)
    course.trying = []


def _probe_all(course: Course, offer: Offer, policy: BatchPolicy) -> Steps[list[BatchProbe] | None]:
    probes: list[BatchProbe] = []
    while len(probes) < MOST_PROBES and (size := next_size(probes, policy)) is not None:
        needs = course.cost_s(1, 1)
        if course.left_s() < needs:
            if not probes:
                course.no_time(offer, str(size), needs)
            break
        course.pending = 4
        result = yield from course.ask({**course.whole, "batch_size": str(size)}, course.compute_mode)
        outcome = result.outcomes.get("batch_size")
        unmoved = outcome is None or outcome.state is not OutcomeState.APPLIED
        if not result.fault and unmoved and size != policy.start:
            why = outcome.code if outcome is not None else result.code or "no-report"
            course.decide(offer, str(size), "refused", {"why": why or "refused"})
            return None
        probes.append(probe_of(size, result))
    return probes


def probe_of(size: int, result: SegmentResult) -> BatchProbe:
    ran = not result.fault and isinstance(result.rate, float)
    return BatchProbe(size=size, ran=ran, peak=result.memory_peak, retries=result.alloc_retries, rate=result.rate)


def _take(course: Course, offer: Offer, policy: BatchPolicy, probes: list[BatchProbe]) -> Steps[None]:
    best = chosen(probes, policy)
    if best is None or best.size <= policy.start:
        _no_larger(course, offer, policy)
        return
    proved = yield from _prove(course, policy, safe_size(best.size, policy))
    if proved is None:
        _no_larger(course, offer, policy)
        return
    size, value = proved.size, str(proved.size)
    if policy.goal is BatchGoal.FIT:
        if isinstance(proved.peak, int) and policy.memory_limit is not None:
            figures: Params = {"batch": size, "largest": best.size, "peak": proved.peak, "limit": policy.memory_limit}
            course.decide(offer, value, "batch-fits", figures)
        else:
            course.decide(offer, value, "batch-ran", {"batch": size, "largest": best.size})
        _keep(course, value)
        return
    question = Question(a=course.whole, b={**course.whole, "batch_size": value}, mode=course.compute_mode)
    trial = yield from held(course, question)
    if trial is None:
        course.decide(offer, value, "interrupted", {"status": course.broke.value})
        return
    found = trial.comparison
    if found is None or trial.fault is not None or isinstance(found.ratio, Missing):
        course.decide(offer, value, "too-little", {"pairs": len(trial.pairs)})
    elif found.answer is Answer.FASTER:
        course.decide(offer, value, "batch-faster", {"batch": size, "gain": percent(found.ratio)}, (found, question.mode))
        _keep(course, value)
        course.first_gain["batch_size"] = percent(found.ratio)
    else:
        course.decide(offer, value, "batch-not-faster", {"batch": size, "gain": percent(found.ratio)}, (found, question.mode))


def _no_larger(course: Course, offer: Offer, policy: BatchPolicy) -> None:
    if "batch_size" not in course.whole:
        course.decide(offer, str(policy.start), "batch-no-larger", {"batch": policy.start})


def _keep(course: Course, value: str) -> None:
    before = course.whole.get("batch_size")
    if before is not None:
        del course.decisions["batch_size", before]  # one batch size, one line
    course.keep("batch_size", value)


def _prove(course: Course, policy: BatchPolicy, size: int) -> Steps[BatchProbe | None]:
    """A longer segment of the real loop at the size that will be used, or at the next smaller one that holds."""
    for _ in range(PROOF_TRIES):
        if size <= policy.start:
            return None
        change = {**course.whole, "batch_size": str(size)}
        result = yield from course.ask(change, Mode.REAL, longer=PROOF)
        probe = probe_of(size, result)
        if is_safe(probe, policy):
            return probe
        size = smaller_size(size, policy)
    return None
