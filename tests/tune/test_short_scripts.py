"""Scripts that train for a short while: in a trial their epochs do not end, unless that is what is looked at."""

import os
import sys

import pytest

torch = pytest.importorskip("torch")

from conftest import QUIET
from flatout.base.clock import SystemClock
from flatout.launch.protection import Unprotected
from flatout.tune.execution.trial_runner import Trials
from flatout.tune.search.questions_and_answers import Mode, OutcomeState, Segment, Status

TRAIN = """
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WORKERS, KEEPS_LOSSES = {workers}, {keeps}

if __name__ == "__main__":
    net = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(160, 8), torch.arange(160) % 3)
    train, valid = DataLoader(data, batch_size=4, shuffle=True, num_workers=WORKERS), DataLoader(data, batch_size=80)
    for epoch in range(2):
        losses = torch.zeros(len(train))
        for number, (x, y) in enumerate(train):
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            if KEEPS_LOSSES:
                losses[number] = loss.detach()
            time.sleep(0.002)
        with torch.no_grad():
            seen = sum(len(x) for x, y in valid)
        print("validated", seen, flush=True)
"""


@pytest.fixture
def trials_of(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opened = []

    def make(workers=0, keeps=False):
        command = [sys.executable, str(script(TRAIN.format(workers=workers, keeps=keeps)))]
        opened.append(Trials(command, {**os.environ, **QUIET}, Unprotected(), SystemClock(), tmp_path / "log"))
        return opened[-1].__enter__()

    yield make
    for one in opened:
        one.__exit__(None, None, None)


def segment(number, mode=Mode.REAL, knobs=None, **more):
    settings = {"warm_steps": 3, "timed_s": 0.2, "timed_steps": 60, "stage": "input", "trying": [], "restart": False}
    return Segment(id=number, knobs=knobs or {}, mode=mode, **{**settings, **more})


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.thorough), 2])
def test_eighty_steps_are_enough_for_many_segments(trials_of, workers, tmp_path):
    """Of the script's own loader, of kept batches, of workers that come and go."""
    trials = trials_of(workers)
    assert trials.look()["loaders"] == [40]
    asked = [{}, {"workers": "1"}, {}, {"workers": "1"}]
    modes = [Mode.REAL, Mode.REPLAY_HOST, Mode.SUPPLY]
    number = 0
    for mode in modes:
        for knobs in asked:
            number += 1
            result = trials.carry_out(segment(number, mode, knobs))
            assert result.status is Status.OK, (mode, knobs, result, trials.said)
            assert result.steps >= 60
            if knobs and mode is not Mode.REPLAY_HOST:
                assert result.outcomes["workers"].state is OutcomeState.APPLIED, (number, result.outcomes)
    assert trials._children == 1
    trials.stop()
    assert "validated" not in (tmp_path / "log").read_text()


def test_where_the_end_of_an_epoch_is_looked_at_it_comes(trials_of, tmp_path):
    trials = trials_of()
    trials.look()
    assert trials.carry_out(segment(1)).steps >= 60
    result = trials.carry_out(segment(2, through_epoch=True, timed_steps=5))
    assert result.epoch_ended
    trials.stop()
    assert "validated 160" in (tmp_path / "log").read_text()


@pytest.mark.thorough
def test_a_script_that_counts_on_the_length_of_its_epochs(trials_of):
    """It crashes in the longer one, is started again, and has its epochs as it knows them."""
    trials = trials_of(keeps=True)
    trials.look()
    for number in range(1, 5):
        result = trials.carry_out(segment(number, timed_steps=20, timed_s=0.05))
        assert result.status in (Status.OK, Status.ENDED), (number, result)
        assert result.steps > 0
    assert not trials._endless
    assert 2 <= trials._children <= 5


def test_a_crash_that_has_another_cause_is_still_one(trials_of, script):
    trials = trials_of()
    trials.look()
    trials.carry_out(segment(1))
    broken = script(TRAIN.format(workers=0, keeps=False) + "\nraise SystemExit(3)\n")
    broken.write_text("raise ValueError('broken')\n")
    trials._command = [sys.executable, str(broken)]
    trials.stop()
    result = trials.carry_out(segment(2))
    assert result.status is Status.CRASH
    assert trials._endless


COUNTS = """
import argparse, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    if args.steps > {most}:
        raise SystemExit("no data for so many steps")
    open("began", "a").write(f"{{args.steps}} ")
    net = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(160, 8), torch.arange(160) % 3)
    step = 0
    while step < args.steps:
        for x, y in DataLoader(data, batch_size=4, shuffle=True):
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            step += 1
            if step == args.steps:
                break
"""


@pytest.mark.parametrize(
    ("most", "lengths"), [pytest.param(10**9, ["60", "1200"], marks=pytest.mark.thorough), (100, ["60", "60"])]
)
def test_a_script_that_counts_its_steps_is_made_to_last(most, lengths, script, tmp_path, monkeypatch):
    """Once it has come to its end; where it does not start so, it is left as it is."""
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, str(script(COUNTS.format(most=most)))]
    with Trials(command, {**os.environ, **QUIET}, Unprotected(), SystemClock(), tmp_path / "log") as trials:
        for number in range(1, 5):
            result = trials.carry_out(segment(number, timed_s=0.01, timed_steps=24))
            assert result.status in (Status.OK, Status.ENDED), (result, trials.said)
            assert result.steps
        assert (tmp_path / "began").read_text().split()[: len(lengths)] == lengths
        if most > 100:
            assert trials._children == 2
        training = trials.curve({}, 50, 0)  # of children as long as ever
        assert len(training.losses) == 50
        assert (tmp_path / "began").read_text().split()[-1] == "60"
