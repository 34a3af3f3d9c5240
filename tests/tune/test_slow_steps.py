"""Loops whose steps take seconds: few steps, several settings beside one plain arm, and a budget that holds."""

import pytest
from imagined import OFFERS, Machine, Runner, offer, plan, search

from flatout.base.records import replace
from flatout.tune.search.arm_order import is_slow
from flatout.tune.search.questions_and_answers import Ending, Mode, SegmentResult, Status
from flatout.tune.search.what_to_try import make

HOT = [one for one in OFFERS if one.knob in ("tf32", "precision", "channels_last", "fused_optimizer")]


def slow(step_s, **more):
    settings = {"prepare": 1e-3, "copy": 1e-3, "launch": 1.0, "device": 1000 * step_s, "knows_busy": False, "looked": True}
    return Machine(**{**settings, **more})


@pytest.mark.parametrize(("step_s", "budget_s"), [(1.63, 90.0), (5.0, 150.0), (0.4, 60.0)])
@pytest.mark.parametrize("loader", [True, False])
def test_what_gives_most_is_found_and_the_budget_holds(step_s, budget_s, loader):
    """Seen: each setting "needs 101 s and 0 s are left", and a budget of 60 s that took 165."""
    for seed in range(5):
        machine = slow(step_s, seed=seed, start_s=15.0, replays=loader, supplies=loader)
        wanted = plan(offers=HOT, budget_s=budget_s, timed_s=0.5, has_loader=loader, step_s=step_s)
        end, segments, _ = search(machine, wanted)
        assert end.profile.get("precision") == "bf16", [(d.knob, d.code) for d in end.decisions]
        assert end.ending is Ending.TUNED
        assert end.spent_s <= 1.1 * budget_s
        steps = [one.warm_steps + one.timed_steps for one in segments]
        assert max(steps) <= (4 if step_s > 1 else 12)


def test_a_first_estimate_keeps_the_first_segment_short():
    """Seen: only the first segment was limited, and took what was there."""
    wanted = make({"device": "cpu", "loaders": [40], "step_s": 5.0}, 2.0, budget_s=60.0)
    _, segments, _ = search(slow(5.0), wanted)
    assert is_slow(wanted.step_s)
    assert segments[0].warm_steps + segments[0].timed_steps == 2


@pytest.mark.parametrize("budget_s", [30.0, 60.0])
def test_no_segment_may_take_longer_than_the_budget(budget_s):
    """A build that never ends, a loop that becomes slow: each is given up where the budget ends."""

    class Endless(Runner):
        def run(self, segment):
            if segment.knobs.get("compile"):
                return SegmentResult(id=segment.id, status=Status.LATE, took_s=segment.give_up_s)
            return super().run(segment)

    machine = slow(0.5)
    machine.runner = lambda: Endless(machine)
    offers = [*HOT, offer("compile", ["default"], builds=True)]
    end, segments, _ = search(machine, plan(offers=offers, budget_s=budget_s, timed_s=0.5, has_loader=False))
    assert all(one.limit_s <= budget_s and one.give_up_s <= 1.1 * budget_s for one in segments)
    assert end.spent_s <= 1.1 * budget_s + 0.5


def test_where_the_budget_ends_in_a_look_what_is_left_is_open():
    class Hangs(Runner):
        def run(self, segment):
            if segment.id > 2:
                return SegmentResult(id=segment.id, status=Status.LATE, took_s=segment.give_up_s)
            return super().run(segment)

    machine = slow(0.05)
    machine.runner = lambda: Hangs(machine)
    end, _, _ = search(machine, plan(offers=HOT, budget_s=30.0))
    assert end.ending is Ending.NOTHING_SHOWN
    assert {d.code for d in end.decisions} == {"no-time"}
    assert len(end.decisions) == len(HOT)


def test_one_long_segment_makes_no_price():
    """Seen: a probe of 26 slow steps was the price of all that followed."""

    class Once(Runner):
        def run(self, segment):
            result = super().run(segment)
            return replace(result, took_s=result.took_s + 40.0) if segment.id == 3 else result

    machine = slow(0.01)
    machine.runner = lambda: Once(machine)
    end, _, _ = search(machine, plan(offers=HOT, budget_s=150.0, has_loader=False))
    assert "no-time" not in {d.code for d in end.decisions}
    assert end.profile["precision"] == "bf16"


def test_where_the_loader_is_slow_it_is_still_asked():
    """Steps of a second for want of data: workers are what helps."""
    machine = Machine(prepare=1500.0, cores=8, launch=3.0, device=20.0, knows_busy=False, looked=True, start_s=5.0)
    workers = [one for one in OFFERS if one.knob == "workers"]
    end, segments, _ = search(machine, plan(offers=workers, budget_s=150.0, timed_s=0.5, worker_cap=8, step_s=1.5))
    assert Mode.SUPPLY in {one.mode for one in segments}
    assert "workers" in end.profile
    assert end.spent_s <= 1.1 * 150
