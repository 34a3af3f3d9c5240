"""Where whole runs follow a search, its last comparison is short, and what seems faster is kept for them to decide."""

import pytest
from imagined import Machine, plan, search

from flatout.knobs.model import Numerics
from flatout.tune.search.device_or_host_bound import Pace
from flatout.tune.search.final_stage import keep_what_seems_faster
from flatout.tune.search.questions_and_answers import Decision, Mode, Verdict
from flatout.tune.search.search_state import Course

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


@pytest.mark.parametrize(("ratio", "pairs", "kept"), [(1.64, 2, True), (1.64, 1, False), (1.3, 2, False), (1.1, 4, False)])
def test_what_a_few_pairs_showed_is_kept_until_whole_runs_decide(ratio, pairs, kept):
    """One pair scatters by 20 %."""
    course = Course(plan(whole_runs_follow=True))
    course.noise.saw_repeated(Mode.REAL, [100.0, 128.0, 96.0, 125.0])
    assert 0.15 < course.noise.of(Mode.REAL) < 0.3
    key = ("compile", "graphs")
    decision = Decision(knob="compile", value="graphs", verdict=Verdict.UNKNOWN, code="too-little", params={"pairs": pairs},
                        numerics=Numerics.TOLERANCE, ratio=ratio, pairs=pairs, mode=Mode.REAL)  # fmt: skip
    course.decisions[key] = decision
    keep_what_seems_faster(course)
    assert course.whole == ({"compile": "graphs"} if kept else {})
    assert course.unpaid == ({"compile"} if kept else set())
    found = course.decisions[key]
    assert (found.code, found.ratio) == ("seems-faster" if kept else "too-little", ratio)


def test_a_device_is_idle_only_where_no_other_witness_denies_it():
    assert Pace(kernels=0.2).mostly_idle
    assert Pace(kernels=0.2, busy=0.1).mostly_idle
    assert not Pace(kernels=0.2, busy=0.99).mostly_idle
    assert not Pace(kernels=0.6, busy=0.1).mostly_idle
    assert not Pace().mostly_idle
