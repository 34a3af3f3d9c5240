"""Growing the batch: whether a larger one gives more samples a second, learns sooner, and is still wanted at the end."""

from __future__ import annotations

from flatout.base.records import Missing, replace
from flatout.measure.statistics import Answer, Comparison
from flatout.measure.time_to_loss import Learned, TimeToLoss
from flatout.tune.batch.learning_race import race
from flatout.tune.batch.search_cost import comparison_s, probe_shape, room_s, step_s
from flatout.tune.search.arm_order import workers_of
from flatout.tune.search.baseline import look, waits
from flatout.tune.search.comparison import Question, Trial
from flatout.tune.search.failing_knob import held
from flatout.tune.search.knob_verdict import percent
from flatout.tune.search.questions_and_answers import BatchGoal, BatchProbe, Mode, Offer, Params, Values
from flatout.tune.search.search_state import Course, Steps
from flatout.tune.search.worker_search import beside_loader, workers_for

AT_THE_SUPPLY = 0.9  # of what the loader gives at most, the loop waits for it
LOOK = 5  # segments


def as_the_loop_would(course: Course, probes: list[BatchProbe]) -> Steps[list[BatchProbe]]:
    """Rates on kept batches as the real loop could have them; else the largest batch always seems the fastest."""
    rates = [probe.rate for probe in probes if isinstance(probe.rate, float)]
    if not rates or course.compute_mode is not Mode.REPLAY_HOST:
        return probes
    wanted = yield from workers_for(course, max(rates))
    workers = workers_of(course.plan, {**course.whole, **course.aid, **wanted})
    if workers not in course.supplies:
        return probes
    return [
        replace(probe, rate=beside_loader(course, probe.rate, workers)) if isinstance(probe.rate, float) else probe
        for probe in probes
    ]


def would_wait(course: Course, offer: Offer, size: int) -> bool:
    """Whether even the present batches could be computed faster than the loader ever gives them. Without workers both take
    turns, and every millisecond counts."""
    workers = workers_of(course.plan, {**course.whole, **course.aid})
    most, demand = course.most_supply, course.ceilings.with_copy
    if not workers or most is None or not isinstance(demand, float) or demand < max(most, course.supplies.get(workers, 0.0)):
        return False
    course.decide(offer, str(size), "input-is-the-wall", {"supply": round(most, 1), "demand": round(demand, 1)})
    return True


def is_faster(course: Course, offer: Offer, size: int, compared: dict[int, Trial], hot: bool) -> Steps[bool]:
    """More samples a second at this size, beside the present one; in the living child where batches can be put together."""
    step = step_s(course, [], size, course.compute_mode)
    needs = comparison_s(course, step, hot)
    if room_s(course) < needs:
        course.no_time(offer, str(size), needs, room_s(course))
        return False
    shape = probe_shape(course, BatchGoal.GROW, size if hot else None, step)
    changed = course.whole if hot else {**course.whole, "batch_size": str(size)}
    question = Question(a=course.whole, b=changed, mode=course.compute_mode, shape_b=shape, settled_if_clear=True)
    trial = yield from held(course, question)
    if trial is None:
        course.decide(offer, str(size), "interrupted", {"status": course.broke.value})
        return False
    found = trial.comparison
    if found is None or trial.fault is not None or isinstance(found.ratio, Missing):
        course.decide(offer, str(size), "too-little", {"pairs": len(trial.pairs)})
        return False
    if found.answer is Answer.FASTER or trial.plainly_faster:
        compared[size] = trial
        return True
    if found.answer is Answer.UNKNOWN and not trial.plainly_slower:
        course.decide(offer, str(size), "too-little", {"pairs": len(trial.pairs)})
        return False
    seen = (found, question.mode)
    course.decide(offer, str(size), "batch-not-faster", {"batch": size, "gain": percent(found.ratio)}, seen)
    return False


def learns_too(course: Course, offer: Offer, value: str, seen: tuple[Comparison, Mode], wanted: Values) -> Steps[None]:
    """More samples a second are no faster training: that is asked for by the time to the same loss. What cannot be raced was
    asked for all the same and is kept, with a word; what raced and was rather later is not. With it stays what it `wanted`."""
    gain = percent(seen[0].ratio)
    learned = yield from race(course, {**course.whole, **course.aid, "batch_size": value})
    if course.batch is not None:
        course.batch = replace(course.batch, time_to_loss=learned)
    if learned.steps_ratio is not None:  # of the real loop, where kept batches say what it could compute
        gain = percent(learned.steps_ratio * int(value) / int(course.whole.get("batch_size", course.plan.batch_size or value)))
    told: Params = {"batch": int(value), "gain": gain}
    if learned.verdict is Learned.SLOWER or learned.code == "rather-later":
        course.decide(offer, value, "batch-learns-slower", {**told, "why": learned.code, **_times(learned)}, seen)
        return
    if learned.verdict is Learned.FASTER:
        course.decide(offer, value, "batch-learns-faster", {**told, **_times(learned)}, seen)
    else:
        course.decide(offer, value, "batch-faster", {**told, "why": learned.code}, seen)
    keep_size(course, value)
    course.first_gain["batch_size"] = gain
    for knob, kept in wanted.items():
        course.decisions.pop((knob, course.whole.get(knob, "")), None)
        course.decide(course.offer(knob), kept, "wanted-by-batch", {"batch": int(value)})
        course.keep(knob, kept)


def _times(learned: TimeToLoss) -> Params:
    return {"times": round(learned.ratio, 2) if learned.ratio is not None else 0.0}


def keep_size(course: Course, value: str) -> None:
    before = course.whole.get("batch_size")
    if before is not None:
        course.decisions.pop(("batch_size", before), None)  # one batch size, one line
    course.keep("batch_size", value)


def leave_if_idle(course: Course) -> Steps[None]:
    """A batch that was faster while computing took longest: where all now waits for the loader it gives no samples more, and
    takes fewer steps of them. The smaller one comes back if it is as fast."""
    value, plan, most = course.whole.get("batch_size"), course.plan, course.most_supply
    if value is None or plan.batch is not BatchGoal.GROW or plan.batch_too_large is not None or course.died or most is None:
        return
    decision, floor = course.decisions[("batch_size", value)], course.ceilings.with_copy
    if isinstance(decision.ratio, Missing) or not isinstance(floor, float) or floor / decision.ratio < most:
        return
    if waits(course.ceilings.real, most, AT_THE_SUPPLY) or course.left_s() < course.cost_s(LOOK + 1, 2, course.first_build_s):
        return
    without = {name: kept for name, kept in course.whole.items() if name != "batch_size"}
    result = yield from course.ask_gently(without, Mode.REAL)
    if result is not None and isinstance(result.rate, float) and not waits(result.rate, course.ceilings.real):
        course.remove("batch_size")
        course.decide(course.offer("batch_size"), value, "batch-idle", {"batch": int(value), "supply": round(most, 1)})
        yield from look(course)
