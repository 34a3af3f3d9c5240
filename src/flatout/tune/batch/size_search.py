"""The batch size, where it was asked for: probes, then a longer proof in the real loop, by the script's own argument.

Probes are made in the living child from batches put together out of kept ones: a segment each, and no start of the script.
Where that cannot be done (batches that do not add up, a model that counts on its size, compiled code, no memory told) each
probe is a fresh child. Running out of memory ends a child and never the search.
"""

from __future__ import annotations

from flatout.base.records import replace
from flatout.tune.batch.growth import as_the_loop_would, is_faster, keep_size, learns_too, would_wait
from flatout.tune.batch.search_cost import kept_back_s, probe_s, probe_shape, proof_s, proof_shape, room_s, step_s
from flatout.tune.batch.size_policy import (
    NEAR,
    NEAR_HOT,
    BatchPolicy,
    between,
    chosen,
    foreseen,
    is_safe,
    larger_size,
    memory_slope,
    next_size,
    safe_size,
    smaller_size,
)
from flatout.tune.search.arm_order import Shape
from flatout.tune.search.comparison import Trial
from flatout.tune.search.knob_verdict import percent
from flatout.tune.search.questions_and_answers import (
    BatchGoal,
    BatchProbe,
    BatchStory,
    Mode,
    Offer,
    OutcomeState,
    Params,
    SegmentResult,
    Status,
)
from flatout.tune.search.search_state import Course, Steps
from flatout.tune.search.worker_search import workers_for

PROOF_TRIES = 6
MOST_PROBES = 24
CHEAP_S = 1.0  # of a probe
LESS = 4  # times: what is tried after a batch that learns no sooner
EFFECT = 0.1  # a step with so much more or less than the wanted samples did not have them
GOES_WITHOUT = frozenset({Status.CRASH, Status.REFUSED, Status.EXIT})  # how a script says that it cannot have other batches


def batch_size(course: Course) -> Steps[None]:
    plan = course.plan
    offer = next((offer for offer in plan.offers if offer.knob == "batch_size"), None)
    if plan.batch is BatchGoal.KEEP or offer is None or plan.batch_size is None:
        return
    raced = course.batch is not None and course.batch.time_to_loss is not None
    if plan.batch is BatchGoal.GROW and ("batch_size" in course.whole or raced):
        return  # what it would give once more is less than what its time gives elsewhere
    course.stage, course.trying, course.batch_to_come = "batch", ["batch_size"], False
    policy = BatchPolicy(
        goal=plan.batch,
        start=int(course.whole.get("batch_size", plan.batch_size)),
        largest=max(plan.batch_limit, plan.batch_size),
        memory_limit=plan.memory_limit,
        headroom=plan.headroom,
    )
    before, kept, aid = course.batch, course.whole.get("batch_size"), course.aid
    _tell(course, policy, [])
    hot = yield from _hot_probes(course, replace(policy, near=NEAR_HOT))
    if hot is None:
        probes = yield from _probe_all(course, offer, policy)
    else:
        probes, dear = hot
        policy = replace(policy, dear=dear)
    if probes:
        _tell(course, policy, probes)
        if plan.batch is BatchGoal.GROW:
            probes = yield from as_the_loop_would(course, probes)
        if plan.batch is not BatchGoal.GROW or not would_wait(course, offer, probes[-1].size):
            yield from _take(course, offer, policy, probes)
        if "batch_size" not in course.whole and (plan.batch_too_large is not None or course.died):
            yield from _take_the_first(course, offer, policy, probes)
    if before is not None and kept is not None and course.whole.get("batch_size") == kept:
        course.batch = before  # asked again after other knobs, with the same answer: its proof is the first one's
    course.trying, course.aid = [], aid


def _tell(course: Course, policy: BatchPolicy, probes: list[BatchProbe], **proved: BatchProbe | bool) -> None:
    """For the record: what is kept is written last, when the search has ended."""
    plan = course.plan
    own = plan.batch_too_large or plan.batch_size or policy.start
    known = {(probe.size, probe.hot) for probe in probes}
    earlier = (
        [probe for probe in course.batch.probes if (probe.size, probe.hot) not in known] if course.batch and probes else []
    )
    course.batch = BatchStory(
        goal=policy.goal,
        own=own,
        size=int(course.whole.get("batch_size", own)),
        begun=plan.batch_size if plan.batch_too_large is not None else None,
        memory_limit=policy.memory_limit,
        headroom=policy.headroom,
        probes=[*earlier, *probes],
        **proved,  # type: ignore[arg-type]
    )


def _hot_probes(course: Course, policy: BatchPolicy) -> Steps[tuple[list[BatchProbe], bool] | None]:
    """And whether they were dear; None where sizes must be tried by the script's own argument."""
    if course.compute_mode is not Mode.REPLAY_HOST or policy.memory_limit is None or "compile" in course.whole:
        return None
    probes: list[BatchProbe] = []
    while len(probes) < MOST_PROBES and (size := next_size(probes, policy)) is not None:
        shape = _affordable(course, policy, probes, size, hot=True)
        if shape is None:
            break
        course.pending = 4
        result = yield from course.ask_gently(course.whole, Mode.REPLAY_HOST, shape)
        if result is not None and result.status is Status.LATE:
            break
        if result is not None and result.code == "nothing-to-replay":
            course.compute_mode = Mode.REAL
        if result is None or result.status in GOES_WITHOUT or not (result.fault or _took_effect(result, size)):
            return None
        probes.append(probe_of(size, result, hot=True))
        if result.took_s > CHEAP_S:
            policy = replace(policy, near=NEAR, dear=True)  # each new size has its plans searched first
    return probes, policy.dear


def _affordable(course: Course, policy: BatchPolicy, probes: list[BatchProbe], size: int, hot: bool) -> Shape | None:
    """The segment of a probe that can be paid together with the proof of its size; None where there is no time for it."""
    needs = _needs(course, policy, probes, size, hot)
    if room_s(course) >= needs:
        step = step_s(course, probes, size, Mode.REPLAY_HOST if hot else course.compute_mode)
        return probe_shape(course, policy.goal, size if hot else None, step)
    if not probes:
        course.no_time(course.offer("batch_size"), str(size), needs, room_s(course))
    return None


def _needs(course: Course, policy: BatchPolicy, probes: list[BatchProbe], size: int, hot: bool) -> float:
    step = step_s(course, probes, size, Mode.REPLAY_HOST if hot else course.compute_mode)
    then = step_s(course, probes, size, Mode.REAL)
    living = hot and course.child_lives(course.whole)
    return probe_s(course, policy.goal, step, 0 if living else 1) + kept_back_s(course, policy.goal, then, hot)


def _took_effect(result: SegmentResult, size: int) -> bool:
    """A loader that is made anew with its data has nothing kept: its batches come as they are, and tell nothing."""
    per_step = result.samples / result.steps if result.steps else 0.0
    return isinstance(result.memory_peak, int) and abs(per_step / size - 1) < EFFECT


def _probe_all(course: Course, offer: Offer, policy: BatchPolicy) -> Steps[list[BatchProbe] | None]:
    probes: list[BatchProbe] = []
    while len(probes) < MOST_PROBES and (size := next_size(probes, policy)) is not None:
        shape = _affordable(course, policy, probes, size, hot=False)
        if shape is None:
            break
        course.pending = 4
        result = yield from course.ask_gently({**course.whole, "batch_size": str(size)}, course.compute_mode, shape)
        if result is not None and result.status is Status.LATE:
            break
        if result is None:  # the script ends too soon with it: as good as one that does not run
            probes.append(BatchProbe(size=size, ran=False))
            continue
        if (why := _unmoved(result)) and size != policy.start:
            course.decide(offer, str(size), "refused", {"why": why})
            return None
        probes.append(probe_of(size, result))
    return probes


def _unmoved(result: SegmentResult) -> str:
    """Why the argument did not change the batch; empty where it did, or the child died before it could be told."""
    outcome = result.outcomes.get("batch_size")
    if result.fault or (outcome is not None and outcome.state is OutcomeState.APPLIED):
        return ""
    return (outcome.code if outcome is not None else result.code) or "no-report"


def probe_of(size: int, result: SegmentResult, hot: bool = False) -> BatchProbe:
    return BatchProbe(
        size=size,
        ran=not result.fault and isinstance(result.rate, float),
        peak=result.memory_peak,
        allocated=result.memory_allocated,
        retries=result.alloc_retries,
        rate=result.rate,
        hot=hot,
    )


def _take(course: Course, offer: Offer, policy: BatchPolicy, probes: list[BatchProbe], again: bool = False) -> Steps[None]:
    """`again`: where the fastest learns no sooner, a much smaller one has nearly its speed and more steps."""
    best = chosen(probes, policy)
    if again and (best is None or best.size <= policy.start):
        return
    if best is None or (best.size <= policy.start and foreseen(probes, policy) is None):
        unfinished = next_size(probes, policy)
        if unfinished is not None and best is not None:
            course.no_time(offer, str(unfinished), _needs(course, policy, probes, unfinished, best.hot), room_s(course))
        else:
            _none_larger(course, offer, policy, probes)
        return
    if policy.goal is BatchGoal.FIT:
        proved = yield from _prove(course, offer, policy, probes)
        if proved is not None:
            _fits(course, offer, policy, probes, proved)
        return
    raced = yield from _grow(course, offer, policy, probes)
    smaller = [probe for probe in probes if raced is not None and probe.size <= raced // LESS]
    if "batch_size" not in course.whole and not again and smaller and room_s(course) > proof_s(course, 0.0):
        yield from _take(course, offer, policy, smaller, again=True)


def _grow(course: Course, offer: Offer, policy: BatchPolicy, probes: list[BatchProbe]) -> Steps[int | None]:
    """Faster, proved, and sooner at the same loss, with as many workers as it wants; the size that raced."""
    best, compared = chosen(probes, policy), dict[int, Trial]()
    assert best is not None
    if best.hot and not (yield from is_faster(course, offer, safe_size(best.size, policy, probes), compared, hot=True)):
        return None
    wanted = yield from workers_for(course, best.rate)
    course.aid = {**course.aid, **wanted}
    proved = yield from _prove(course, offer, policy, probes)
    if proved is None:
        return None
    # In the living child it costs little; a proof that held only further down has changed the question.
    if proved.size not in compared and not (yield from is_faster(course, offer, proved.size, compared, best.hot)):
        return None
    found = compared[proved.size].comparison
    assert found is not None
    yield from learns_too(course, offer, str(proved.size), (found, course.compute_mode), wanted)
    return proved.size


def _take_the_first(course: Course, offer: Offer, policy: BatchPolicy, probes: list[BatchProbe]) -> Steps[None]:
    """Where nothing larger holds, because the script's own is too large, or what was larger died at an epoch's end: what it was
    started with is proved as well, and less where even that dies."""
    down = replace(policy, start=0, largest=policy.start, goal=BatchGoal.FIT)
    small = [probe for probe in probes if probe.size <= policy.start]
    proved = (yield from _prove(course, offer, down, small)) if chosen(small, down) is not None else None
    if proved is None and course.died:
        course.decide(offer, str(min(course.died)), "batch-dies", {"batch": min(course.died)})
    elif proved is not None and (proved.size < policy.start or course.plan.batch_too_large is not None):
        course.decisions.pop(("batch_size", str(policy.start)), None)
        course.decide(offer, str(proved.size), "batch-holds", {"batch": proved.size})
        keep_size(course, str(proved.size))


def _fits(course: Course, offer: Offer, policy: BatchPolicy, probes: list[BatchProbe], proved: BatchProbe) -> None:
    best, size = chosen(probes, policy), proved.size
    largest = max(best.size, size) if best is not None else size
    if isinstance(proved.peak, int) and policy.memory_limit is not None:
        figures: Params = {"batch": size, "largest": largest, "peak": proved.peak, "limit": policy.memory_limit}
        unfinished = next_size(probes, policy) is not None
        course.decide(offer, str(size), "batch-fits-so-far" if unfinished else "batch-fits", figures)
    else:
        course.decide(offer, str(size), "batch-ran", {"batch": size, "largest": largest})
    keep_size(course, str(size))


def _none_larger(course: Course, offer: Offer, policy: BatchPolicy, probes: list[BatchProbe]) -> None:
    """Of the fastest, that it is not faster; of the largest, that none larger holds."""
    rates = {probe.size: probe.rate for probe in probes if is_safe(probe, policy) and isinstance(probe.rate, float)}
    largest, own = max(rates, default=policy.start), rates.get(policy.start)
    if policy.goal is BatchGoal.GROW and own and largest > policy.start:
        gain = percent(rates[largest] / own)
        course.decide(offer, str(largest), "batch-not-faster", {"batch": largest, "gain": gain})
    else:
        _no_larger(course, offer, policy)


def _no_larger(course: Course, offer: Offer, policy: BatchPolicy) -> None:
    if "batch_size" not in course.whole:
        course.decide(offer, str(policy.start), "batch-no-larger", {"batch": policy.start})


def _prove(course: Course, offer: Offer, policy: BatchPolicy, probes: list[BatchProbe]) -> Steps[BatchProbe | None]:
    """A longer segment of the real loop at the size that will be used, or at the next smaller one that holds.

    Where the real loop needs less than the probes did, one larger size gets its chance: a probe is no promise either way.
    """
    best = chosen(probes, policy)
    assert best is not None
    slope = memory_slope(sorted((p for p in probes if is_safe(p, policy)), key=lambda p: p.size))
    size: int | None = foreseen(probes, policy) or safe_size(best.size, policy, probes)
    held_up: BatchProbe | None = None
    died: list[int] = []  # in the real loop, or took more than they may
    for _ in range(PROOF_TRIES):
        if size is None or size <= policy.start or (held_up is not None and size <= held_up.size):
            break
        step = step_s(course, probes, size, Mode.REAL)
        if room_s(course) < proof_s(course, step):
            break
        values = {**course.whole, **course.aid, "batch_size": str(size)}
        result = yield from course.ask_gently(values, Mode.REAL, proof_shape(course, step))
        if result is not None and result.status is Status.LATE:
            break
        if result is not None and (why := _unmoved(result)):
            course.decide(offer, str(size), "refused", {"why": why})
            return None
        probe = BatchProbe(size=size, ran=False) if result is None else probe_of(size, result)
        if is_safe(probe, policy):
            held_up = probe
            _tell(course, policy, probes, proved=probe, epoch_seen=result is not None and result.epoch_ended)
            size = None
            if policy.goal is BatchGoal.FIT:
                size = between(probe.size, died) if died else larger_size(probe, probes, policy, slope)
            slope = None  # once
        else:
            probes = [*probes, probe]
            died.append(size)
            course.died.append(size)
            refused = result is None or result.status in GOES_WITHOUT  # by the script itself, not for want of memory
            smaller = max(policy.start, size // LESS) if refused else smaller_size(probe, policy, slope, len(died))
            size = smaller if held_up is None else None
    else:
        size = None
    if held_up is None and size is not None and size > policy.start:  # the time was up first
        course.no_time(offer, str(size), proof_s(course, step_s(course, probes, size, Mode.REAL)), max(0.0, room_s(course)))
    elif held_up is None:
        _no_larger(course, offer, policy)
    return held_up
