"""Steps are not batches: gradients that are accumulated, loaders that are read in step, trainings that go through folds."""

import os
import sys

import pytest

pytest.importorskip("torch")

from test_run_length import recorded

from conftest import QUIET, read_again
from flatout.base.clock import SystemClock
from flatout.launch.protection import Unprotected
from flatout.machine import host
from flatout.machine.machine_facts import HostMemory
from flatout.tune.confirmation.whole_run_parts import Scale, measured
from flatout.tune.execution.trial_runner import Trials
from flatout.tune.search.run_length import RunLength, batches_of_an_epoch, find_length
from flatout.tune.search.time_budget import Costs, budget
from flatout.tune.search.what_to_try import make

HEAD = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def loader(samples):
    return DataLoader(TensorDataset(torch.ones(samples, 8)), batch_size=2)

net = nn.Linear(8, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
"""
ACCUMULATED = """
number, training = 0, loader(160)
for epoch in range(3):
    for (x,) in training:
        net(x).sum().backward()
        number += 1
        if number % 8 == 0 and number != 16:  # a gradient scaler leaves out one of the first steps
            optimizer.step(); optimizer.zero_grad()
"""
IN_STEP = """
first, second = loader(40), loader(60)
for epoch in range(3):
    for (x,), (y,) in zip(first, second):
        net(torch.cat([x, y])).sum().backward()
        optimizer.step(); optimizer.zero_grad()
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("loop", "a_step", "steps"), [(ACCUMULATED, 8.0, 29), (IN_STEP, 1.0, 60)])
def test_an_epoch_is_an_epoch(loop, a_step, steps, tmp_path, script):
    """Seen: two loaders read in step counted as two epochs, and eight accumulated batches as an eighth of one."""
    command = [sys.executable, str(script(HEAD + loop))]
    with Trials(command, {**os.environ, **QUIET}, Unprotected(), SystemClock(), tmp_path / "log") as trials:
        ready = trials.look()
        assert ready["batches_a_step"] == a_step, trials.said
        made = trials.run_whole({}, {}, {"cut_s": 60.0, "stop_s": 60.0}, 60.0)
    found = measured(made, Scale(batches=batches_of_an_epoch(ready)))
    assert (found.whole, found.epochs) == (True, 3.0)
    windows = [line for lines in made.journals for line in lines if line["kind"] == "window"]
    assert (windows[-1]["steps"], windows[-1]["turns"]) == (steps, 2)


ACCUMULATES = {"loaders": [80], "batches_a_step": 8.0, "step_s": 1.0}
EPOCHS = 'import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument("--epochs", type=int, default=10)'


def test_of_accumulated_gradients_steps_are_fewer_than_batches(tmp_path, script):
    path = script(EPOCHS)
    assert find_length([sys.executable, str(path)], None, ACCUMULATES, tmp_path) == RunLength(
        steps=100, epochs=10.0, source="own-argument"
    )
    assert find_length([sys.executable, str(path)], 200, ACCUMULATES, tmp_path).epochs == 20.0
    assert make(ACCUMULATES, 4.0).epoch_steps == 10
    day = {**ACCUMULATES, "loaders": [8000]}
    assert budget(None, Costs(looked_s=1, start_s=1, step_s=1), None, day).whole_s == 1000.0


def test_an_earlier_run_tells_its_epochs_by_its_batches(tmp_path, script):
    """Also of one that trains anew for each fold."""
    command = [sys.executable, str(script(EPOCHS))]
    recorded(tmp_path, "20260101-000000-aaaa", command, 500, batches=4000)
    assert find_length(command, None, ACCUMULATES, tmp_path) == RunLength(steps=500, epochs=50.0, source="earlier-run")


def test_an_earlier_run_of_an_older_version_has_steps_alone(tmp_path, script):
    command = [sys.executable, str(script(EPOCHS))]
    recorded(tmp_path, "20260101-000000-aaaa", command, 500)
    assert find_length(command, None, ACCUMULATES, tmp_path).epochs == 50.0


MEMMAP = (
    HEAD.replace("import torch\n", "import torch, numpy\n", 1)
    + """
data = numpy.memmap("data.bin", dtype="uint8", mode="r")
for step in range(40):
    part = data[step::4096]
    net(torch.full((4, 8), float(part.sum() % 7))).sum().backward()
    optimizer.step(); optimizer.zero_grad()
"""
)


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="by the kernel's counters")
def test_where_the_data_exceed_the_memory_each_run_begins_with_none_of_them(tmp_path, script, monkeypatch):
    with (tmp_path / "data.bin").open("wb") as file:
        file.write(os.urandom(1 << 20) * 80)
        file.flush()
        os.fsync(file.fileno())
    if read_again(tmp_path / "data.bin") < 70 << 20:
        pytest.skip("this file system keeps its files in memory")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(host, "memory", lambda: HostMemory(total_bytes=1 << 20))
    command = [sys.executable, str(script(MEMMAP))]
    with Trials(command, {**os.environ, **QUIET}, Unprotected(), SystemClock(), tmp_path / "log") as trials:
        assert trials.look() is not None, trials.said
        assert list(trials.fair.data) == [str(tmp_path / "data.bin")]
        made = [trials.run_whole({}, {}, {"cut_s": 60.0, "stop_s": 60.0}, 60.0) for _ in range(2)]
    assert all(one.read_bytes >= 70 << 20 for one in made), made
