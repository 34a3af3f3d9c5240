"""Loaders as scripts have them beside the one that is trained from: in trials they end, and nothing is told of them."""

import os
import sys

import pytest

torch = pytest.importorskip("torch")

from conftest import QUIET
from flatout.base.clock import SystemClock
from flatout.launch.sandbox import Sandbox
from flatout.tune.model import Mode, Segment, Status
from flatout.tune.trials import Trials

# Validation every few steps, all loaders made on one line; `GUARD` is what it runs under.
VALIDATES = """
import threading, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def loader(data, shuffle):
    return DataLoader(data, batch_size=4, shuffle=shuffle)

def train():
    net = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data, held_out = (TensorDataset(torch.randn(size, 8), torch.arange(size) % 3) for size in (4000, 12))
    batches, valid = loader(data, True), loader(held_out, False)
    for epoch in range(50):
        for number, (x, y) in enumerate(batches):
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            time.sleep(0.001)
            if number % 10 == 5:
                with torch.GUARD():
                    seen = [x.shape[0] for x, y in valid]
                assert seen == [4, 4, 4], seen

if __name__ == "__main__":
    START
"""
INLINE, IN_A_THREAD = "train()", "one = threading.Thread(target=train); one.start(); one.join()"


@pytest.mark.parametrize(("guard", "start"), [("no_grad", INLINE), ("inference_mode", INLINE), ("no_grad", IN_A_THREAD)])
def test_a_validation_in_mid_epoch_ends_and_is_not_trained_from(guard, start, script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = script(VALIDATES.replace("GUARD", guard).replace("START", start))
    environ = {**os.environ, **QUIET}
    modes = [Mode.REAL, Mode.REPLAY_HOST, Mode.SUPPLY, Mode.REAL]
    with Trials([sys.executable, str(path)], environ, Sandbox([]), SystemClock(), tmp_path / "log") as trials:
        assert trials.look()["loaders"] == [1000]
        for number, mode in enumerate(modes):
            knobs = {"workers": "1"} if number == 3 else {}
            asked = Segment(
                id=number + 1, knobs=knobs, mode=mode, warm_steps=3, timed_s=0.2, timed_steps=40, stage="input", trying=[],
                restart=False,
            )  # fmt: skip
            result = trials.carry_out(asked)
            assert result.status is Status.OK, (mode, result, trials.said)
            assert result.samples == 4 * result.steps
            if knobs:
                assert result.outcomes["workers"].state == "applied"
