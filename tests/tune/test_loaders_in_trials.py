"""Loaders as scripts have them beside the one that is trained from: in trials they end, and nothing is told of them."""

import os
import sys

import pytest

torch = pytest.importorskip("torch")

from conftest import QUIET
from flatout.base.clock import SystemClock
from flatout.base.records import replace
from flatout.launch.protection import Unprotected
from flatout.tune.execution.trial_runner import Trials
from flatout.tune.search.questions_and_answers import Mode, Segment, Status

# Validation every few steps, all loaders made on one line; `GUARD` is what it runs under.
VALIDATES = """
import threading, time
import torch
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

LOADERS

def train():
    net = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    batches, valid = loaders()
    for epoch in range(50):
        for number, (x, y) in enumerate(batches):
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            time.sleep(0.001)
            if number % 10 == 5:
                GUARD
                assert seen == [4, 4, 4], seen

if __name__ == "__main__":
    START
"""
INLINE, IN_A_THREAD = "train()", "one = threading.Thread(target=train); one.start(); one.join()"
OUTSIDE = "with torch.no_grad(): seen = [x.shape[0] for x, y in valid]"
INFERENCE = "with torch.inference_mode(): seen = [x.shape[0] for x, y in valid]"
INSIDE = """seen = []
                for x, y in valid:
                    with torch.no_grad(): seen.append(net(x).shape[0])"""
ONE_LINE = """
def loader(data, shuffle):
    return DataLoader(data, batch_size=4, shuffle=shuffle)

def loaders():
    data, held_out = (TensorDataset(torch.randn(size, 8), torch.arange(size) % 3) for size in (4000, 12))
    return loader(data, True), loader(held_out, False)
"""
ONE_DATASET = """
def loaders():
    data = TensorDataset(torch.randn(4012, 8), torch.arange(4012) % 3)
    batches = DataLoader(data, batch_size=4, sampler=SubsetRandomSampler(range(4000)))
    return batches, DataLoader(data, batch_size=4, sampler=SubsetRandomSampler(range(4000, 4012)))
"""
BOTH = """
def loader(data, chosen):
    return DataLoader(data, batch_size=4, sampler=SubsetRandomSampler(chosen))

def loaders():
    data = TensorDataset(torch.randn(4012, 8), torch.arange(4012) % 3)
    return loader(data, range(4000)), loader(data, range(4000, 4012))
"""


@pytest.mark.parametrize(
    ("loaders", "guard", "start"),
    [
        pytest.param(ONE_LINE, OUTSIDE, INLINE, marks=pytest.mark.thorough),
        pytest.param(ONE_LINE, INFERENCE, INLINE, marks=pytest.mark.thorough),
        (ONE_LINE, OUTSIDE, IN_A_THREAD),
        pytest.param(ONE_DATASET, OUTSIDE, INLINE, marks=pytest.mark.thorough),
        pytest.param(ONE_DATASET, INSIDE, INLINE, marks=pytest.mark.thorough),
        (BOTH, INSIDE, INLINE),
    ],
)
def test_a_validation_in_mid_epoch_ends_and_is_not_trained_from(loaders, guard, start, script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = script(VALIDATES.replace("LOADERS", loaders).replace("GUARD", guard).replace("START", start))
    environ = {**os.environ, **QUIET}
    modes = [Mode.REAL, Mode.REPLAY_HOST, Mode.SUPPLY, Mode.REAL]
    with Trials([sys.executable, str(path)], environ, Unprotected(), SystemClock(), tmp_path / "log") as trials:
        assert trials.look()["loaders"][0] == 1000
        for number, mode in enumerate(modes):
            knobs = {"workers": "1"} if number == 3 else {}
            asked = Segment(
                id=number + 1, knobs=knobs, mode=mode, warm_steps=3, timed_s=0.2, timed_steps=40, stage="input", trying=[],
                restart=False,
            )  # fmt: skip
            result = trials.carry_out(asked)
            assert result.status is Status.OK, (mode, result, trials.said)
            assert result.samples == 4 * result.steps
            for again in range(2) if knobs else ():  # a busy machine may have no room for a worker just now
                if result.outcomes["workers"].code == "no-room-for-workers":
                    result = trials.carry_out(replace(asked, id=len(modes) + 1 + again))
            if knobs:
                assert result.outcomes["workers"].state == "applied", result.outcomes


@pytest.mark.parametrize("loaders", [pytest.param(ONE_DATASET, marks=pytest.mark.thorough), BOTH])
def test_a_loader_is_drawn_from_and_not_the_validation_that_comes_first(loaders, script, tmp_path, monkeypatch):
    """After every step: whenever the front asks for what the loader gives, a validation on the same data fetches next."""
    monkeypatch.chdir(tmp_path)
    text = VALIDATES.replace("LOADERS", loaders).replace("GUARD", INSIDE).replace("START", INLINE)
    path = script(text.replace("number % 10 == 5", "True"))
    with Trials([sys.executable, str(path)], {**os.environ, **QUIET}, Unprotected(), SystemClock(), tmp_path / "log") as trials:
        trials.look()
        for number in (1, 2, 3):
            asked = Segment(
                id=number, knobs={}, mode=Mode.SUPPLY, warm_steps=3, timed_s=0.2, timed_steps=40, stage="input", trying=[],
                restart=False,
            )  # fmt: skip
            result = trials.carry_out(asked)
            assert result.status is Status.OK, (result, trials.said)
            assert result.steps >= 40
            assert result.samples == 4 * result.steps
