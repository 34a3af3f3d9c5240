"""Where whole runs follow a search, its last comparison is short, and what seems faster is kept for them to decide."""

import pytest
from tests.tune.imagined import Machine, plan, search

LAUNCHING = {"launch": 2.4, "device": 0.8, "prepare": 8.0, "copy": 0.05, "sigma": 0.12, "build_s": 15.0, "cores": 14}


def found(follow, seed, **machine):
    wanted = plan(budget_s=60.0, worker_cap=14, steps_planned=4700, step_s=0.0075, whole_runs_follow=follow)
    return search(Machine(**{**LAUNCHING, **machine}, seed=seed), wanted)


def test_what_a_short_search_leaves_open_is_decided_by_whole_runs():
    """A restless machine, steps of 2.4 ms of launching: recorded they take a third."""
    gains, seeds = {True: [], False: []}, range(1, 13)
    for follow in gains:
        for seed in seeds:
            end, _, _ = found(follow, seed)
            machine = Machine(**LAUNCHING)
            gains[follow].append(machine.rate(end.profile) / machine.rate({}))
    assert sum(gains[True]) > sum(gains[False])
    assert min(gains[True]) > 1.5


def test_the_last_comparison_takes_four_pairs():
    _, segments, _ = found(True, 1)
    assert sum(segment.stage == "final" for segment in segments) <= 8
    _, segments, _ = found(False, 1)
    assert sum(segment.stage == "final" for segment in segments) > 8


@pytest.mark.parametrize("seed", range(1, 21))
def test_what_seems_faster_is_named_as_undecided(seed):
    end, _, _ = found(True, seed)
    seeming = [one.knob for one in end.decisions if one.code == "seems-faster"]
    assert set(seeming) <= set(end.unpaid) & set(end.profile)
