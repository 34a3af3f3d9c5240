"""Several settings beside one plain arm: faults that pass, rounds that the budget ends in, and chance among four arms."""

import math
import random
from statistics import median

import pytest
from imagined import Machine, Runner, offer, plan
from traces import BUSY, Trace, made, recorded

from flatout.measure.statistics import FEWEST_PAIRS
from flatout.tune.search import slow_step_rotation
from flatout.tune.search.agent_answers import result_of
from flatout.tune.search.baseline import baseline
from flatout.tune.search.questions_and_answers import Finished, Mode, SegmentResult, Status, Verdict
from flatout.tune.search.search import Search

OFFERS = [
    offer(knob, [value])
    for knob, value in (("precision", "bf16"), ("tf32", "on"), ("channels_last", "on"), ("fused_optimizer", "on"))
]
GAINS = {"precision": 1.5, "tf32": 1.25}


class DecidedError(Exception):
    """Carries the decisions out of the search."""


def one_rotation(course):
    yield from baseline(course)
    yield from slow_step_rotation.rotate(course, OFFERS, Mode.REAL)
    raise DecidedError(course.decisions.values(), course.whole)


def decisions(run, **wanted):
    found = Search(plan(**{"offers": OFFERS, "budget_s": 300.0, "timed_s": 0.5, "has_loader": False, **wanted}), one_rotation)
    results = []
    try:
        while True:
            segment = found.next(results)
            assert not isinstance(segment, Finished)
            results.append(run(segment))
    except DecidedError as end:
        return {one.knob: one for one in end.args[0]}, end.args[1], results


class Loop:
    """Steps of a second; each setting has its gain. `faults`: of the so manieth segment under a setting, what becomes of it."""

    def __init__(self, gains, faults=(), spread=0.003, seed=1):
        self.gains, self.faults, self.draw, self.spread = gains, dict(faults), random.Random(seed), spread
        self.asked = {}

    def run(self, segment):
        trying = segment.trying[0] if segment.trying else ""
        self.asked[trying] = self.asked.get(trying, 0) + 1
        status = self.faults.get((trying, self.asked[trying])) or self.faults.get((trying, 0))
        if status is not None:
            return SegmentResult(id=segment.id, status=status, took_s=2.0)
        gain = math.prod(self.gains.get(knob, 1.0) for knob in segment.knobs)
        times = [math.exp(self.draw.gauss(0, self.spread)) / gain for _ in range(max(2, segment.timed_steps))]
        told = {name: {"status": "applied", "code": "", "details": {}} for name in segment.knobs}
        answer = {"id": segment.id, "status": "ok", "samples": len(times), "seconds": sum(times), "steps": len(times)}
        return result_of({**answer, "outcomes": told}, sum(times) + segment.warm_steps)


def test_a_fault_that_passes_closes_nothing():
    """Seen: one segment that died, of whatever, was the end of a setting."""
    found, whole, results = decisions(Loop(GAINS, {("precision", 1): Status.CRASH}).run, step_s=1.0)
    assert found["precision"].verdict is Verdict.KEPT
    assert whole["precision"] == "bf16"
    assert sum(one.status is Status.CRASH for one in results) == 1


def test_a_fault_that_stays_does():
    found, whole, results = decisions(Loop(GAINS, {("precision", 0): Status.CRASH}).run, step_s=1.0)
    assert (found["precision"].code, sum(one.status is Status.CRASH for one in results)) == ("fault", 2)
    assert whole == {"tf32": "on"}


def test_what_a_late_round_had_timed_counts():
    """The budget ends in the third round, after two of its settings: these have three pairs, the others two."""
    gains = {one.knob: 1.03 for one in OFFERS}
    loop = Loop(gains, {("channels_last", 3): Status.LATE}, spread=0.03)
    found, _, _ = decisions(loop.run, step_s=1.0)
    pairs = {knob: one.params["pairs"] for knob, one in found.items()}
    assert pairs == {"precision": 3, "tf32": 3, "channels_last": 2, "fused_optimizer": 2}


def test_what_is_faster_and_had_no_time_beside_the_one_that_was_kept_says_so():
    """Seen: "not tried, it needs 8 s" of a setting that was a quarter faster in two pairs."""
    found, whole, _ = decisions(Loop(GAINS, {("precision", 3): Status.LATE}).run, step_s=1.0)
    assert whole == {"precision": "bf16"}
    told = found["tf32"]
    assert (told.code, told.verdict, told.params["other"]) == ("faster-not-beside", Verdict.UNKNOWN, "precision")
    assert told.params["gain"] == pytest.approx(25.0, abs=2.0)


def test_each_look_has_its_share_of_alpha():
    assert tuple(range(FEWEST_PAIRS, slow_step_rotation.MOST_ROUNDS + 1)) == slow_step_rotation.LOOKS


class Traced:
    """Slow steps as a trace has them."""

    def __init__(self, trace, gains, step_s, seed):
        scale = step_s / median(trace.ordinary)
        parts = ([one * scale for one in part] for part in (trace.ordinary, trace.waits, trace.extra))
        self.trace, self.gains, self.draw = Trace(trace.name, *parts), gains, random.Random(seed)
        self.place = self.draw.randrange(len(trace.ordinary))

    def step(self, times):
        self.place += 1
        if self.place == len(self.trace.ordinary):
            self.place = self.draw.randrange(self.place)
        wait = self.trace.waits[self.place] / times
        return self.trace.ordinary[self.place] / times + wait + self.trace.extra[self.place], wait

    def run(self, segment):
        gain = math.prod(self.gains.get(knob, 1.0) for knob in segment.knobs)
        took = sum(self.step(gain)[0] for _ in range(segment.warm_steps))
        taken = [self.step(gain) for _ in range(segment.timed_steps)]
        while sum(time for time, _ in taken) < segment.timed_s:
            taken.append(self.step(gain))
        times, waits = map(list, zip(*taken, strict=True))
        told = {name: {"status": "applied", "code": "", "details": {}} for name in segment.knobs}
        answer = {"id": segment.id, "status": "ok", "samples": len(times), "seconds": sum(times), "steps": len(times)}
        return result_of({**answer, "step_times": times, "step_waits": waits, "outcomes": told}, took + sum(times))


@pytest.mark.thorough
@pytest.mark.parametrize("step_s", [0.4, 1.0])
def test_of_four_settings_without_an_effect_hardly_one_is_kept(step_s):
    every, claimed, runs = [*made(), *recorded(), *recorded(BUSY)], [], 100
    for seed in range(runs):
        trace = every[seed % len(every)]
        found, _, _ = decisions(Traced(trace, {}, step_s, seed).run, step_s=step_s)
        claimed += [(trace.name, one.knob) for one in found.values() if one.verdict is Verdict.KEPT]
    assert len(claimed) <= 0.015 * runs * len(OFFERS), claimed  # 0.01 when this was written


def test_the_best_is_kept_and_the_next_one_beside_it():
    found, whole, _ = decisions(Loop(GAINS).run, step_s=1.0)
    assert whole == {"precision": "bf16", "tf32": "on"}
    assert found["channels_last"].verdict is not Verdict.KEPT


def test_a_machine_with_usual_noise_is_searched_through():
    machine = Machine(prepare=1e-3, copy=1e-3, launch=1.0, device=1000.0, knows_busy=False, looked=True)
    found, whole, _ = decisions(Runner(machine).run, step_s=1.0)
    assert whole["precision"] == "bf16"
    assert set(found) == {one.knob for one in OFFERS}
