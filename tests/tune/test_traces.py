"""The judge on traces of step times: without an effect it claims nothing, and a tenth is found."""

import random
from functools import cache

from imagined import offer, plan
from traces import BUSY, made, recorded

from flatout.knobs.model import Bound, Numerics
from flatout.tune.search.agent_answers import result_of
from flatout.tune.search.baseline import baseline
from flatout.tune.search.compute_knobs import consider
from flatout.tune.search.questions_and_answers import Finished, Mode, Verdict
from flatout.tune.search.search import Search

KNOB = offer("fused_optimizer", ["on"], Numerics.TOLERANCE, [Bound.LAUNCH])
RUNS = 200
LONGEST_S = 600.0  # of a trace's own time for one setting


class JudgedError(Exception):
    """Carries the decision out of the search."""


def one_setting(course):
    yield from baseline(course)
    decision = yield from consider(course, KNOB, "on", Mode.REAL)
    raise JudgedError(decision)


class Runner:
    """Steps of a trace, one after the other; under the setting all but what is not in every step is `gain` times as fast."""

    def __init__(self, trace, gain, seed):
        self.trace, self.gain = trace, gain
        self.draw = random.Random(seed)
        self.place = self.draw.randrange(len(trace.ordinary))

    def step(self, faster):
        self.place += 1
        if self.place == len(
            self.trace.ordinary
        ):  # somewhere else: in step with the order of the segments it would be no chance
            self.place = self.draw.randrange(self.place)
        place = self.place
        times = self.gain if faster else 1.0
        wait = self.trace.waits[place] / times
        return self.trace.ordinary[place] / times + wait + self.trace.extra[place], wait

    def run(self, segment):
        faster = "fused_optimizer" in segment.knobs
        took = sum(self.step(faster)[0] for _ in range(segment.warm_steps))
        times, waits, timed = [], [], 0.0
        while timed < segment.timed_s or len(times) < segment.timed_steps:
            time, wait = self.step(faster)
            times.append(time)
            waits.append(wait)
            usual = sorted(times)[len(times) // 2]
            timed += min(time, wait + 5 * usual)  # as the agent sets apart what is far from usual
        outcomes = {name: {"status": "applied", "code": "", "details": {}} for name in segment.knobs}
        answer = {"id": segment.id, "status": "ok", "samples": len(times), "seconds": sum(times), "steps": len(times)}
        return result_of({**answer, "step_times": times, "step_waits": waits, "outcomes": outcomes}, took + sum(times))


def decision_of(trace, gain, seed):
    runner, results = Runner(trace, gain, seed), []
    found = Search(plan(offers=[KNOB], budget_s=LONGEST_S, timed_s=0.5, has_loader=False), one_setting)
    try:
        while True:
            segment = found.next(results)
            assert not isinstance(segment, Finished)
            results.append(runner.run(segment))
    except JudgedError as end:
        return end.args[0]


@cache
def decisions(gain):
    every = [*made(), *recorded(), *(recorded(BUSY) if gain == 1.0 else [])]
    return [(every[seed % len(every)].name, decision_of(every[seed % len(every)], gain, seed)) for seed in range(RUNS)]


def test_without_an_effect_nothing_is_claimed():
    claimed = [(name, one.ratio) for name, one in decisions(1.0) if one.verdict is Verdict.KEPT]
    assert len(claimed) <= 0.05 * RUNS, claimed


def test_a_tenth_is_found():
    missed = [(name, one.code, one.ratio) for name, one in decisions(1.1) if one.verdict is not Verdict.KEPT]
    assert len(missed) <= 0.1 * RUNS, missed


def test_there_are_traces_of_real_scripts():
    every = [*recorded(), *recorded(BUSY)]
    assert len(every) >= 10
    assert all(len(trace.ordinary) >= 250 and min(trace.ordinary) >= 0 for trace in every)
