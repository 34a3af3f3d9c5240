"""Runs of a few seconds: no setting saves more than the loop takes, so nothing is searched unless a budget is asked for."""

import json
import sys

import pytest
from test_run_length import recorded

from flatout.tune.search.run_length import RunLength
from flatout.tune.search.time_budget import Costs
from flatout.tune.search.too_short_run import loop_s

COSTS = Costs(looked_s=4.0, start_s=4.0, step_s=0.01)
OWN = RunLength(steps=300, epochs=3.0, source="own-argument")


@pytest.mark.parametrize(
    ("length", "ready", "found"),
    [
        (OWN, {"workers": 0}, 3.0),
        (RunLength(steps=900, source="asked"), {"workers": 0}, None),
        (OWN, {"workers": 2}, None),
        (RunLength(epochs=3.0, source="own-argument"), {}, None),
        (None, {}, None),
    ],
)
def test_by_the_first_steps(length, ready, found, tmp_path):
    """With workers of its own the first batches lay ready: their steps say nothing of the later ones."""
    assert loop_s([sys.executable, "train.py"], length, COSTS, ready, tmp_path) == found


@pytest.mark.parametrize(("wall_s", "found"), [(7.0, 3.0), (40.0, None)])
def test_an_earlier_run_says_it_better(wall_s, found, tmp_path):
    command = [sys.executable, "train.py"]
    recorded(tmp_path, "20260101-000000-aaaa", command, 300, wall_s=wall_s, parts={"start": 4.0, "steps": wall_s - 4.0})
    earlier = RunLength(steps=300, source="earlier-run")
    assert loop_s(command, earlier, COSTS, {"workers": 2}, tmp_path) == found


SHORT = """
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
net = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(80, 8)), batch_size=4)
for epoch in range(parser.parse_args().epochs):
    for (x,) in loader:
        net(x).sum().backward()
        optimizer.step(); optimizer.zero_grad()
"""


def test_a_real_one_ends_after_the_first_look(flatout, script, tmp_path):
    pytest.importorskip("torch")
    ended = flatout("tune", "--json", script(SHORT))
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert (told["ending"], told["profile"], told["segments"]) == ("too-short-to-repay", {}, 0)
    assert "too short for tuning" in ended.stderr
    assert "--budget" in ended.stderr
    assert not (tmp_path / "flatout.toml").exists()
