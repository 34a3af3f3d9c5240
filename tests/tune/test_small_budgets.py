"""Budgets for a few segments: what mostly gives most is timed beside the plain script, and nothing is kept back for later."""

import pytest
from imagined import OFFERS, Machine, plan, search

from flatout.tune.search.questions_and_answers import Mode

HOT = [one for one in OFFERS if one.knob in ("tf32", "precision", "channels_last", "fused_optimizer")]


@pytest.mark.parametrize(("device", "budget_s"), [(10.0, 5.0), (10.0, 15.0), (200.0, 10.0), (200.0, 25.0), (200.0, 40.0)])
@pytest.mark.parametrize("loader", [True, False])
def test_what_mostly_gives_most_has_its_turn(device, budget_s, loader):
    """Seen: a first look took 30 s of 40, and what was left went into looks at both sides; every setting had "0 s left"."""
    for seed in range(4):
        machine = Machine(
            prepare=0.01, copy=0.01, launch=device / 5, device=device, knows_busy=False, looked=True, replays=loader, seed=seed
        )
        wanted = plan(offers=HOT, budget_s=budget_s, timed_s=0.5, has_loader=loader, step_s=device / 1000)
        end, _, _ = search(machine, wanted)
        found = {d.knob: d.code for d in end.decisions}
        assert found["precision"] == "plainly-faster", found
        assert end.profile["precision"] == "bf16"
        assert end.spent_s <= 1.15 * budget_s


@pytest.mark.parametrize("budget_s", [14.0, 20.0])
def test_a_loop_that_waits_a_little_for_data_is_not_looked_at_from_both_sides(budget_s):
    """Seen: 13 s of segments of 2.7 s, and all of them were looks."""
    machine = Machine(prepare=10.0, copy=0.01, launch=40, device=200.0, knows_busy=False, looked=True)
    workers = [one for one in OFFERS if one.knob == "workers"]
    end, segments, _ = search(machine, plan(offers=[*HOT, *workers], budget_s=budget_s, timed_s=0.5, step_s=0.25))
    assert end.profile["precision"] == "bf16"
    assert {one.mode for one in segments} == {Mode.REAL}


def test_a_loop_that_mostly_waits_has_its_input_side_looked_at():
    machine = Machine(prepare=150.0, copy=0.01, launch=10, device=12.0, knows_busy=False, looked=True)
    workers = [one for one in OFFERS if one.knob == "workers"]
    _, segments, _ = search(machine, plan(offers=[*HOT, *workers], budget_s=14.0, timed_s=0.5, step_s=0.18))
    assert Mode.SUPPLY in {one.mode for one in segments}


def test_a_usual_budget_looks_at_both_sides():
    machine = Machine(prepare=8.0, cores=8, launch=3.0, device=10.0, looked=True)
    _, segments, _ = search(machine, plan(budget_s=90.0, timed_s=0.5, worker_cap=8))
    assert "supply" in {one.mode for one in segments[:12]}
