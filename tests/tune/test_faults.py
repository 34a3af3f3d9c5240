"""Children that die, hang or end: the search goes on, and nobody is retried blindly."""

import pytest
from imagined import OFFERS, Machine, offer, plan, search

from flatout.tune.search.questions_and_answers import FAULTS, Ending, SegmentResult, Status, Verdict

EVERY = [(o.knob, value) for o in OFFERS for value in o.values]


@pytest.mark.parametrize("status", sorted(FAULTS))
@pytest.mark.parametrize(("knob", "value"), EVERY)
def test_a_knob_that_kills_the_child(knob, value, status):
    machine = Machine(launch=9, device=8, prepare=15, faults={(knob, value): status})
    wanted = plan(budget_s=500.0)
    end, segments, results = search(machine, wanted)
    assert end.ending is Ending.TUNED
    assert end.profile.get(knob) != value
    assert machine.rate(end.profile) / machine.optimum(wanted) >= 0.93
    struck = [r.id for r in results if r.status is status]
    assert len(struck) <= 2, "retried blindly"
    # After each fault a fresh child.
    by_id = {segment.id: segment for segment in segments}
    assert all(by_id[number + 1].restart for number in struck if number + 1 in by_id)
    if struck:
        decision = next(d for d in end.decisions if (d.knob, d.value) == (knob, value))
        assert decision.verdict is Verdict.FAILED
        assert decision.params["status"] == status


def test_too_many_workers():
    machine = Machine(prepare=60, cores=16, faults={("workers", "16"): Status.OOM, ("workers", "12"): Status.OOM})
    wanted = plan(budget_s=400.0, worker_cap=16)
    end, _, results = search(machine, wanted)
    assert end.profile["workers"] == "8"
    assert sum(r.status is Status.OOM for r in results) <= 4


@pytest.mark.parametrize("seed", range(4))
def test_a_script_that_crashes_at_random(seed):
    machine = Machine(flaky=0.04, seed=seed)
    wanted = plan(budget_s=600.0)
    end, _, results = search(machine, wanted)
    assert any(r.fault for r in results)
    assert end.ending is Ending.TUNED
    assert machine.rate(end.profile) >= 0.8 * machine.optimum(wanted)


class After:
    """A machine on which a knob that worked begins to fail after so many segments."""

    def __init__(self, machine, knob, number):
        self.machine, self.knob, self.number = machine, knob, number

    def runner(self):
        runner = self.machine.runner()
        later = self

        class Failing:
            def run(self, segment):
                if later.knob in segment.knobs and segment.id > later.number:
                    return SegmentResult(id=segment.id, status=Status.CRASH, took_s=0.5)
                return runner.run(segment)

        return Failing()


@pytest.mark.parametrize("number", [30, 50, 70, 90])
def test_what_was_kept_and_breaks_later_is_taken_back(number):
    machine = Machine()
    for knob in ("precision", "workers", "compile"):
        end, _, _ = search(After(machine, knob, number), plan(budget_s=500.0))
        assert knob not in end.profile
        assert end.ending is Ending.TUNED


def test_a_plain_script_that_fails():
    end, segments, _ = search(Machine(flaky=1.0), plan())
    assert end.ending is Ending.BASELINE_FAILS
    assert end.params["status"] == Status.CRASH
    assert end.profile == {}
    assert len(segments) == 3


def test_a_script_with_three_steps():
    end, segments, _ = search(Machine(script_s=0.04), plan())
    assert end.ending is Ending.TOO_SHORT
    assert len(segments) <= 6


def test_a_short_script_is_started_again():
    machine, wanted = Machine(script_s=3.0, start_s=1.0), plan(budget_s=900.0, skip=["compile"])
    end, segments, results = search(machine, wanted)
    assert sum(r.status is Status.ENDED for r in results) > 5
    assert end.ending is Ending.TUNED
    assert machine.rate(end.profile) > 2 * machine.rate({})
    followers = [segments[i + 1] for i, r in enumerate(results[:-1]) if r.status is Status.ENDED]
    assert all(segment.restart for segment in followers)


def test_a_hang_is_not_waited_for_twice_without_time():
    machine = Machine(faults={("precision", "bf16"): Status.HANG}, hang_s=120.0)
    end, _, results = search(machine, plan(budget_s=200.0))
    assert sum(r.status is Status.HANG for r in results) == 1
    assert next(d for d in end.decisions if d.knob == "precision").verdict is Verdict.FAILED
    # In a hurry it was one of several, and nobody knows which: to find out is not worth another minute.
    machine = Machine(faults={("precision", "bf16"): Status.HANG}, hang_s=60.0)
    end, _, results = search(machine, plan(budget_s=100.0))
    assert sum(r.status is Status.HANG for r in results) == 1
    assert next(d for d in end.decisions if d.knob == "precision").code == "no-time"
    assert end.spent_s < 115


def test_a_group_that_fails_is_taken_apart():
    more = [*OFFERS, offer("allocator", ["expandable"], restart=True)]
    machine = Machine(faults={("allocator", "expandable"): Status.SEGFAULT})
    end, _, results = search(machine, plan(budget_s=500.0, offers=more))
    assert end.profile["cudnn_benchmark"] == "on"
    assert next(d for d in end.decisions if d.knob == "allocator").verdict is Verdict.FAILED
    # Once in the group, once alone.
    assert sum(r.status is Status.SEGFAULT for r in results) == 2
