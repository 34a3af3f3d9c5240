"""`run --auto`: exact knobs tried inside a real training, which must end with the same bits as under plain Python."""

import contextlib
import json
import os
import runpy
import signal
import subprocess
import sys
import time

import pytest
from imagined import EXACT, RESAMPLED, Machine, Runner, offer

torch = pytest.importorskip("torch")

from conftest import EXAMPLES, QUIET
from flatout.base.clock import SystemClock
from flatout.knobs.model import Bound, Numerics
from flatout.launch.run import Wanted, run_observed
from flatout.tune.execution.auto_tuning import JOURNAL, AutoTuner, auto_course
from flatout.tune.search.questions_and_answers import Ending, Finished, Mode, Plan
from flatout.tune.search.search import Search
from flatout.tune.search.what_to_try import make, make_exact

pytestmark = pytest.mark.calm

# Fetching sleeps, so that workers help on any machine. With "draws" it also draws: workers would draw other numbers; with
# "workers" it has its own, which draw.
SLEEPY = """
import os, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Sleepy(Dataset):
    def __len__(self):
        return 320
    def __getitem__(self, index):
        time.sleep(0.001)
        x = torch.full((8,), float(index % 7))
        return (x + torch.rand(8) if sys.argv[2] != "pure" else x), index % 3

if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.2), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    own = 2 if sys.argv[2] == "workers" else 0
    steps, loader = 0, DataLoader(Sleepy(), batch_size=4, shuffle=True, num_workers=own)
    for epoch in range(int(sys.argv[1])):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            steps += 1
        if os.path.exists("enough"):
            break
    torch.save({"net": net.state_dict(), "epochs": epoch + 1, "steps": steps, "draw": torch.rand(1)}, sys.argv[3])
"""


@pytest.fixture
def in_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(threads)


def under_auto(command, folder):
    """The script is told when the tuning is through, however long that takes here."""
    tuner = AutoTuner(SystemClock(), 2.0, lambda told: (folder / "enough").touch(), budget_s=15.0, timed_s=0.02)
    environ = {**os.environ, **QUIET}
    finished = run_observed(
        [sys.executable, *map(str, command)], environ, SystemClock(), Wanted(auto=True), beside=tuner.beside
    )
    assert finished.returncode == 0
    faults = [line for lines in finished.journals for line in lines if line["kind"] == "fault"]
    assert not faults
    lines = [json.loads(line) for line in (folder / finished.folder / JOURNAL).read_text(encoding="ascii").splitlines()]
    return tuner.told(), [line for line in lines if line.get("result")]


def plainly(path, *arguments):
    """The same script in this process, which has torch at hand already."""
    before = sys.argv
    sys.argv = [str(path), *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(None), torch.random.fork_rng():
            runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv = before


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("kind", ["pure", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("draws", "workers"))])
def test_every_bit_of_a_training_is_as_it_was(kind, script, in_the_folder):
    path = script(SLEEPY)
    told, tried = under_auto([path, 10000, kind, "auto.pt"], in_the_folder)
    (in_the_folder / "enough").unlink()
    auto = torch.load("auto.pt", weights_only=True)
    plainly(path, auto["epochs"], kind, "plain.pt")
    plain = torch.load("plain.pt", weights_only=True)
    assert auto["steps"] == plain["steps"] == 80 * auto["epochs"]
    assert same(auto["net"], plain["net"])
    assert torch.equal(auto["draw"], plain["draw"]), "what comes after the training"
    with_workers = [line for line in tried if (line["result"]["outcomes"].get("workers") or {}).get("state") == "applied"]
    if kind == "pure":
        assert with_workers, "nothing was tried"
        assert {one.knob for one in told.decisions} == {"workers", "persistent_workers", "prefetch_factor", "gc_policy"}
    else:
        assert not with_workers
        skipped = {one.knob: one.code for one in told.decisions}
        if told.ending == "ended" and not skipped:
            return  # on a busy machine the script is over before the plain speed is known
        assert skipped["workers"] == skipped["prefetch_factor"] == "not-allowed"


@pytest.mark.thorough
def test_the_restoration_specimen_is_as_it_was(in_the_folder):
    command = [EXAMPLES / "restoration.py", "--small", "--batch-size", "4", "--train-size", "800", "--epochs", "1"]
    _, tried = under_auto([*command, "--out", "auto"], in_the_folder)
    assert tried  # how far it comes in 200 steps depends on the machine
    plainly(*command, "--out", "plain")
    auto, plain = (torch.load(f"{name}/last.pt", weights_only=True) for name in ("auto", "plain"))
    assert same(auto["model"], plain["model"])


def test_a_short_script_and_wrong_usage(flatout, script):
    ended = flatout("run", "--auto", "--json", script(SLEEPY), "1", "pure", "last.pt")
    assert ended.returncode == 0
    told = json.loads(ended.stderr[ended.stderr.index("{") :])
    assert told["auto"]["ending"] in ("ended", "not-begun")
    assert told["steps"] == 80
    wrong = flatout("run", "--auto", "--safe", "train.py", "1", "pure", "last.pt")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


def test_an_interrupt_ends_the_training_as_ever(script, tmp_path):
    command = [sys.executable, "-m", "flatout", "run", "--auto", str(script(SLEEPY)), "100000", "pure", "last.pt"]
    child = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **QUIET}, stderr=subprocess.PIPE)
    end = time.monotonic() + 90
    while not list(tmp_path.glob(".flatout/runs/*/result-2.json")) and time.monotonic() < end:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGINT
    (summary,) = tmp_path.glob(".flatout/runs/*/summary.json")
    told = json.loads(summary.read_text(encoding="utf-8"))["auto"]
    assert (told["ending"], told["segments"] >= 2) == ("ended", True)
    assert b"The script ended before tuning during training was complete" in b" ".join(said.split())


# -- the search alone, over imagined machines ----------------------------------------------------------------------------

OFFERS = [
    offer("workers", [], EXACT, [Bound.INPUT]),
    offer("prefetch_factor", ["4"], EXACT, [Bound.INPUT]),
    offer("pin_memory", ["on"], EXACT, [Bound.COPY, Bound.INPUT]),
    offer("gc_policy", ["on"], EXACT, [Bound.LAUNCH]),
]


def searched(machine, offers=OFFERS):
    plan = Plan(offers=list(offers), budget_s=120.0, timed_s=0.3, worker_cap=8, allow=Numerics.EXACT)
    found, runner, results, segments = Search(plan, auto_course), Runner(machine), [], []
    while not isinstance(step := found.next(results), Finished):
        segments.append(step)
        results.append(runner.run(step))
    return step, segments


def test_what_helps_is_kept_and_only_the_real_loop_is_asked():
    end, segments = searched(Machine(prepare=40, launch=2, device=4))
    assert end.ending is Ending.TUNED
    assert int(end.profile["workers"]) >= 4
    assert end.lower > 2
    assert {segment.mode for segment in segments} == {Mode.REAL}
    assert not any(segment.batch or segment.curve for segment in segments)
    assert end.spent_s < 150


def test_where_nothing_helps_the_script_stays_as_it_is():
    end, _ = searched(Machine(prepare=0.05, launch=2, device=40, copy=0.01))
    assert end.ending in (Ending.FLAT_OUT, Ending.NOTHING_SHOWN)
    assert end.profile == {}


def test_what_is_not_exact_is_not_asked_for():
    end, segments = searched(Machine(prepare=40), [offer("workers", [], RESAMPLED, [Bound.INPUT])])
    assert not any(segment.knobs for segment in segments)
    assert end.profile == {}


def test_the_class_that_the_agent_found_counts_even_where_it_is_worse():
    ready = {"device": "cuda", "numerics": {"prefetch_factor": "resampled", "pin_memory": "exact", "gc_policy": "exact"}}
    classes = {one.knob: one.numerics for one in make_exact(ready, 4.0).offers}
    assert classes == {"prefetch_factor": RESAMPLED, "pin_memory": EXACT, "gc_policy": EXACT}
    assert [one.knob for one in make_exact({**ready, "device": "cpu"}, 4.0).offers] == ["prefetch_factor", "gc_policy"]


@pytest.mark.parametrize(
    ("device", "cores", "most"), [("cuda", 16.0, 14), ("cuda", 4.0, 4), ("cuda", 0.5, 1), ("cpu", 16.0, 16)]
)
def test_cores_for_the_loop_itself(device, cores, most):
    assert make({"device": device}, cores).worker_cap == most
    assert make_exact({"device": device}, cores).worker_cap == most
