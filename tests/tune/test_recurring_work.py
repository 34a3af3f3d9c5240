"""What is not in every step (evaluations, checkpoints, logs) is told apart from what is, in real trials and in traces."""

import os
import random
import sys
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import QUIET
from flatout.base.clock import SystemClock
from flatout.launch.protection import Unprotected
from flatout.measure.ordinary_steps import centre, centre_by_device, set_apart
from flatout.tune.execution.trial_runner import Trials
from flatout.tune.search.agent_answers import result_of
from flatout.tune.search.questions_and_answers import Mode, Segment, Status, compared_rates

EVALUATES = """
import time
import torch
from torch import nn

model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(4096, 8)

@torch.no_grad()
def evaluate():
    model.eval()
    for _ in range(20):
        model(data[:16])
        time.sleep(0.02)
    model.train()

for step in range(100000):
    if step % 30 == 0:
        evaluate()
    x = data[torch.randint(0, 4096, (16,))]
    loss = model(x).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    time.sleep(0.004)
"""


def test_an_evaluation_without_a_loader_is_not_in_the_speed_of_the_loop(script, tmp_path, monkeypatch):
    """Seen: an evaluation of 4 s every 250 steps was in the forward pass, and any setting's gain was "± 540 %"."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, str(script(EVALUATES))]
    with Trials(command, {**os.environ, **QUIET}, Unprotected(), SystemClock(), tmp_path / "log") as trials:
        assert trials.look()["loaders"] == []
        results = [
            trials.carry_out(
                Segment(
                    id=number,
                    knobs={},
                    warm_steps=2,
                    timed_s=0.05,
                    timed_steps=12,
                    mode=Mode.REAL,
                    restart=False,
                    stage="baseline",
                    trying=[],
                )
            )
            for number in range(1, 13)
        ]
    assert {result.status for result in results} == {Status.OK}, trials.said
    met = [result for result in results if result.recurring_s > 0.3]
    assert 2 <= len(met) < len(results), "there is one every thirty steps, and segments of some twelve"
    free = [result for result in results if result not in met]
    with_it, without = (median(result.step_s for result in some) for some in (met, free))
    assert with_it < 2 * without, "with the evaluations in it a step seems to take four times as long"


def steps_of(seed, count, sigma=0.05, far=()):
    draw = random.Random(seed)
    times = [0.015 * (1 + abs(draw.gauss(0, sigma))) for _ in range(count)]
    for place, seconds in far:
        times[place] += seconds
    return times


@pytest.mark.parametrize("seed", range(20))
def test_ordinary_steps_are_left_alone(seed):
    times = steps_of(seed, 50)
    assert set_apart(times, [0.0] * 50).seconds < 0.02 * sum(times)


def test_an_evaluation_is_set_apart():
    found = set_apart(steps_of(1, 50, far=[(17, 4.0)]), [0.0] * 50)
    assert found.steps == 1
    assert found.seconds == pytest.approx(4.0, rel=0.01)


def test_bursts_of_workers_count_whatever_they_look_like():
    times, waits = [0.001] * 64, [0.0] * 64
    for place in range(0, 64, 16):
        times[place], waits[place] = 0.101, 0.1
    assert set_apart(times, waits).seconds == 0.0


def test_what_is_in_one_step_of_five_belongs_to_the_loop():
    times = [0.01, 0.01, 0.01, 0.01, 0.05] * 10
    assert set_apart(times, [0.0] * 50).seconds == 0.0


@given(st.lists(st.floats(1e-5, 10), max_size=60))
def test_never_more_than_was_spent(times):
    found = set_apart(times, [0.0] * len(times))
    assert 0 <= found.seconds <= sum(times)


def test_another_program_moves_the_middle_little():
    """A fifth of the steps was held up by it: their sum says 40 % more."""
    times = [0.01] * 40 + [0.03] * 10
    assert centre(times, [0.0] * 50) == pytest.approx(0.01)
    assert centre(times[:5], [0.0] * 5) is None


def test_every_wait_for_a_batch_counts():
    times, waits = [0.01] * 8, [0.0] * 8
    times[3], waits[3] = 0.09, 0.08
    assert centre(times, waits) == pytest.approx(0.02)


def answered(steps, times):
    told = {"id": 1, "status": "ok", "samples": 10 * steps, "seconds": sum(times), "steps": steps}
    return result_of({**told, "step_times": times, "step_waits": [0.0] * len(times)}, 1.0)


def test_two_segments_are_compared_by_the_same_measure():
    """A few slow steps have no middle: then both are told by their sums, or the quick ones would look quicker than they are."""
    quick, few = answered(50, [0.01] * 40 + [0.015] * 10), answered(3, [0.1, 0.1, 0.13])
    assert compared_rates(quick, quick) == (pytest.approx(1000), pytest.approx(1000))
    assert compared_rates(few, quick) == (pytest.approx(30 / 0.33), pytest.approx(500 / 0.55))
    assert compared_rates(few, answered(0, [])) is None


def test_steps_that_were_added_up_are_steps_again():
    assert answered(100, [0.04] * 25).ordinary_rate == pytest.approx(1000)


def test_what_the_host_waits_for_while_the_device_works_is_no_time_of_the_step():
    """Its queue is three steps long: every fourth time the host waits 30 ms, and the device never does."""
    times, waits = [0.01] * 40, [0.03 if step % 4 == 0 else 0.0 for step in range(40)]
    assert centre_by_device(times, waits) == pytest.approx(0.01)
    assert centre_by_device(times[:5], waits[:5]) is None


def test_a_device_that_waits_for_bursts_of_a_loader_pays_for_them():
    times = [0.041 if step % 4 == 0 else 0.001 for step in range(40)]
    assert centre_by_device(times, [0.04 if time > 0.01 else 0.0 for time in times]) == pytest.approx(0.011)


def test_an_evaluation_on_a_card_is_cut_off():
    assert centre_by_device([0.004] * 49 + [4.0], [0.0] * 50) == pytest.approx(0.004, rel=0.02)
