"""Workers in real children: switched to and fro, over ends of epochs, with training and validation made on one line."""

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
import os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __init__(self, length):
        self.length = length
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        time.sleep(0.002)
        with open("pids", "a") as file:
            file.write(f"{os.getpid()} ")
        return torch.full((8,), float(index % 7)), index % 3

def make(length):
    return DataLoader(Slow(length), batch_size=4, shuffle=True)

if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    train, valid = make(160), make(8)
    while True:
        for x, y in train:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad(); loss.backward(); optimizer.step()
        with torch.no_grad():
            for x, y in valid:
                net(x)
"""


@pytest.fixture
def trials(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, str(script(TRAIN))]
    with Trials(command, {**os.environ, **QUIET}, Unprotected(), SystemClock(), tmp_path / "log") as one:
        yield one


def segment(number, workers=None, mode=Mode.REAL):
    knobs = {} if workers is None else {"workers": str(workers)}
    settings = {"warm_steps": 6, "timed_s": 0.25, "timed_steps": 8, "stage": "input", "trying": [], "restart": False}
    return Segment(id=number, knobs=knobs, mode=mode, **settings)


def test_workers_come_and_go_and_are_the_same_when_they_come_back(trials, tmp_path):
    assert trials.look()["loaders"] == [40]
    rates, pids = {}, []
    for number, (workers, mode) in enumerate(
        [(None, Mode.REAL), (2, Mode.SUPPLY), (4, Mode.SUPPLY), (4, Mode.REAL), (None, Mode.REAL), (4, Mode.REAL)], 1
    ):
        (tmp_path / "pids").unlink(missing_ok=True)
        result = trials.carry_out(segment(number, workers, mode))
        assert result.status is Status.OK, result
        if workers is not None:
            assert result.outcomes["workers"].state is OutcomeState.APPLIED, (number, result.outcomes)
        rates[workers, mode] = result.rate
        pids.append({pid for pid in (tmp_path / "pids").read_text().split() if pid.isdecimal()})
    assert rates[4, Mode.SUPPLY] > 1.2 * rates[None, Mode.REAL]  # beside other tests two and four may be much alike
    assert len(pids[3] & pids[5]) >= 4, "they waited, and were not started anew"


@pytest.mark.parametrize("known", [False, True])
def test_epochs_turn_behind_a_script_that_has_one(known, script, tmp_path, monkeypatch):
    """Workers that stay show where epochs turn. A script with a single short epoch is not started again for that.

    Of an iterator nobody can tell whether it is as it was: then workers are started at every turn, unless the knob is on.
    """
    monkeypatch.chdir(tmp_path)
    once = TRAIN.replace("while True:", "for epoch in range(1):")
    assert once != TRAIN
    if not known:
        once = once.replace("self.length = length", "self.length, self.names = length, iter('abc')")
    command = [sys.executable, str(script(once))]
    knobs = {"workers": "2"}
    seen = []
    with Trials(command, {**os.environ, **QUIET}, Unprotected(), SystemClock(), tmp_path / "log") as trials:
        for number, more in enumerate([{}, {"persistent_workers": "on"}, {"persistent_workers": "on"}, {}], 1):
            settings = {"warm_steps": 2, "timed_s": 0.25, "timed_steps": 8, "stage": "input", "trying": [], "restart": False}
            result = trials.carry_out(Segment(id=number, knobs={**knobs, **more}, mode=Mode.REAL, epochs=2, **settings))
            assert result.status is Status.OK, result
            assert result.steps == 80
            assert result.outcomes["workers"].details["turns_known"] is known
            if more:
                assert result.outcomes["persistent_workers"].state is OutcomeState.APPLIED, result.outcomes
            seen.append(result.rate)
    # The best of each: what else runs beside it only ever takes time.
    assert known or max(seen[1:3]) > max(seen[0], seen[3]), "starting workers at every turn costs time"


def test_what_lay_ready_is_no_speed(script, tmp_path, monkeypatch):
    """Two workers give 20 batches a second, the loop could take 28: for a while it has them from what was fetched before."""
    monkeypatch.chdir(tmp_path)
    slow = TRAIN.replace("time.sleep(0.002)", "time.sleep(0.025)").replace(
        "optimizer.step()", "optimizer.step(); time.sleep(0.035)"
    )
    slow = slow.replace("make(160)", "make(100000)")
    command = [sys.executable, str(script(slow))]
    rates = {}
    with Trials(command, {**os.environ, **QUIET}, Unprotected(), SystemClock(), tmp_path / "log") as trials:
        trials.look()
        kept = {"restart": False, "stage": "input", "trying": [], "knobs": {"workers": "2", "prefetch_factor": "4"}}
        for number, (mode, seconds) in enumerate(
            [(Mode.REAL, 0.2), (Mode.REPLAY_HOST, 1.0), (Mode.REAL, 0.8), (Mode.SUPPLY, 1.0), (Mode.REAL, 2.0)], 1
        ):
            asked = Segment(id=number, mode=mode, warm_steps=2, timed_s=seconds, timed_steps=3, **kept)
            result = trials.carry_out(asked)
            assert result.status is Status.OK, result
            rates[number] = result.rate
            if number == 3:
                assert 0.1 < result.drained < 0.6, "eight lay ready, of about 22"
                assert result.samples / result.seconds > 1.15 * rates[3]
            elif number == 5:
                assert result.drained < 0.1, "they were drawn empty"
    assert rates[3] == pytest.approx(rates[5], rel=0.15)
    assert rates[3] == pytest.approx(rates[4], rel=0.15)
