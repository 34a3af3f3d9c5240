"""What happens to a run that lasts: a disk that fills up, a clock that is set, a card that is watched for days."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flatout.base.clock import SystemClock
from flatout.launch.run import run_observed
from flatout.machine.machine_facts import Interpreter
from flatout.measure.summary import summarise

pytest.importorskip("torch")

LOOP = """
import resource, time, torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0); torch.set_num_threads(1)
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def train(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for (x,) in DataLoader(TensorDataset(torch.randn(40, 8)), batch_size=4):
            net(x).sum().backward(); opt.step(); opt.zero_grad(); time.sleep(0.005)
"""


def test_a_disk_that_fills_up_while_it_trains(flatout, script):
    """No file may grow past a few blocks: the journal stops, the training does not, and what was seen is told."""
    path = script(LOOP + "train(1.2)\nresource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))\ntrain(2)\nprint('learned')")
    ended = flatout("run", path)
    assert (ended.returncode, ended.stdout) == (0, b"learned\n")
    assert "Traceback" not in ended.stderr
    assert ended.summary["steps"] >= 20


def test_a_disk_that_was_full_before(script, tmp_path):
    """Nothing can be written at all: the script runs as it would alone, and one sentence says why there is no record."""
    path = script("print('ran'); raise SystemExit(3)")
    ended = subprocess.run(
        [sys.executable, "-m", "flatout", "run", str(path)],
        cwd=tmp_path,
        capture_output=True,
        env={**os.environ, "FLATOUT_LANG": "en", "TMPDIR": str(tmp_path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (3, b"ran\n")
    sentence = ended.stderr.decode()
    assert sentence.startswith("flatout: the script runs, but flatout measures nothing")
    assert sentence.count("\n") == 1


@pytest.mark.thorough
def test_a_full_disk_at_the_end_costs_the_record_and_nothing_else(script, tmp_path):
    path = script(LOOP + "train(0.5)\nprint('learned')")
    ended = subprocess.run(
        [sys.executable, "-m", "flatout", "run", str(path)],
        cwd=tmp_path,
        capture_output=True,
        env={**os.environ, "FLATOUT_LANG": "en", "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500)),
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, b"learned\n")
    told = ended.stderr.decode()
    assert "Traceback" not in told
    assert "Where the time went" in told
    assert "could not make its summary" in told


class SetClock(SystemClock):
    """The wall clock is wrong by so many seconds when the script is started, and right again inside it."""

    def __init__(self, wrong: float) -> None:
        self.wrong = wrong

    def wall(self) -> float:
        return time.time() + self.wrong


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", [-3600.0, *(pytest.param(wrong, marks=pytest.mark.thorough) for wrong in (3600.0, 0.0))])
def test_a_clock_that_is_set_makes_and_loses_no_time(wrong, script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = script(LOOP + "train(1)")
    began = time.monotonic()
    finished = run_observed([sys.executable, str(path)], {**os.environ, "OMP_NUM_THREADS": "1"}, SetClock(wrong))
    took = time.monotonic() - began
    from flatout.machine import facts

    summary = summarise(finished, facts.machine(Interpreter()))
    assert 1 <= summary.wall_s <= took
    assert sum(summary.phases.values()) == pytest.approx(summary.wall_s, abs=0.01)
    assert all(spent >= 0 for spent in summary.phases.values())
    assert summary.training_s == pytest.approx(1.0, abs=0.5)


def test_the_record_of_a_run_is_small(flatout, script):
    ended = flatout("run", "-q", script(LOOP + "train(3)"))
    assert sum(Path(file).stat().st_size for file in ended.run_folder.iterdir()) < 200_000
