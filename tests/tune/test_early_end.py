"""Runs that are measured and need not come to their end: the epoch is cut, validation stays whole, and the parts add up."""

import math
import os
import sys
import time
from itertools import count

import pytest

torch = pytest.importorskip("torch")

from conftest import QUIET
from flatout.base.records import Missing, replace
from flatout.launch import journals
from flatout.launch.trial_process import TrialChild
from flatout.measure.promise import with_recurring
from flatout.tune.confirmation.whole_run_parts import RunMade, Scale, measured, saves

TRAIN = """
import sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((8,), float(index % 7)), index % 3

if __name__ == "__main__":
    epochs, samples, workers = map(int, sys.argv[1:4])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    training = DataLoader(Data(samples), batch_size=4, num_workers=workers)
    for epoch in range(epochs):
        for x, y in training:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad(); loss.backward(); optimizer.step()
        with torch.no_grad():
            seen = sum(len(net(x)) for x, y in DataLoader(Data(40), batch_size=4))
        print(f"epoch {epoch}: validated on {seen}", flush=True)
        torch.save(net.state_dict(), sys.argv[4])
    print("the end")
"""


@pytest.fixture
def ran(tmp_path, script):
    """The script in a child as tune starts it; what the parent knows of it, its own lines and what it printed."""

    number = count()

    def run(*arguments, source=TRAIN, **job):
        command = [sys.executable, str(script(source)), *map(str, arguments), str(tmp_path / "saved.pt")]
        began = time.monotonic()
        child = TrialChild(command, {**os.environ, **QUIET}, tmp_path / f"child-{next(number)}", **job)
        try:
            code = child.process.wait(120)
            wall_s = time.monotonic() - began
            lines = journals.read_whole(child.folder)
            return RunMade(wall_s=wall_s, code=code, journals=lines), [line for one in lines for line in one], child.said()
        finally:
            child.kill()

    return run


def early(lines):
    return [line for line in lines if line["kind"] == "ended-early"]


@pytest.mark.parametrize(
    ("workers", "knobs"), [(0, {"workers": "2"}), pytest.param(1, {"workers": "2"}, marks=pytest.mark.thorough)]
)
def test_a_long_epoch_is_cut_and_its_validation_is_not(workers, knobs, ran):
    made, lines, said = ran(50, 100_000, workers, knobs=knobs, until={"cut_s": 1.0, "stop_s": 90.0})
    assert made.code == 0, said
    (line,) = early(lines)
    assert line["turns"] == 2
    assert said.splitlines() == ["epoch 0: validated on 40", "epoch 1: validated on 40"]
    assert not [line for line in lines if line["kind"] == "fault"]
    found = measured(made, Scale(batches=25_000.0))
    assert not found.whole
    assert found.parts["steps"] > 25_000 * 0.002
    assert found.step_s > 0.002
    assert found.parts["validation"] > 40 * 0.002 * 0.8
    assert found.parts["checkpoint"] > 0


FIRST_IS_DEAR = """
        if epoch == 0:
            net.eval(); time.sleep(1.5); net.train()
        with torch.no_grad():"""


@pytest.mark.parametrize(("stop_s", "turns"), [(90.0, 2), pytest.param(2.0, 1, marks=pytest.mark.thorough)])
def test_the_first_validation_speaks_for_no_other_where_there_is_time(stop_s, turns, ran):
    dear = TRAIN.replace("\n        with torch.no_grad():", FIRST_IS_DEAR, 1)
    made, lines, said = ran(50, 100_000, 0, source=dear, until={"cut_s": 0.6, "stop_s": stop_s})
    assert made.code == 0, said
    assert early(lines)[0]["turns"] == turns
    validation_s = measured(made, Scale(batches=25_000.0)).parts["validation"]
    assert (validation_s < 1.5) == (turns == 2), validation_s


@pytest.mark.thorough
def test_short_epochs_are_not_cut_and_the_process_ends_after_a_turn(ran):
    made, lines, said = ran(10_000, 40, 0, until={"cut_s": 1.0, "stop_s": 90.0})
    assert made.code == 0, said
    (line,) = early(lines)
    assert line["turns"] >= 1
    assert line["step"] >= 24


def test_a_run_that_fits_comes_to_its_end_and_its_parts_are_its_wall_time(ran):
    made, lines, said = ran(3, 40, 0, until={"cut_s": 90.0, "stop_s": 120.0})
    assert said.splitlines()[-1] == "the end"
    assert not early(lines)
    saved = saves(lines)
    assert saved["path"].endswith("saved.pt")
    assert saved["bytes"] == 3 * saved["largest"] > 0
    found = measured(made, Scale(batches=10.0))
    assert (found.whole, found.epochs) == (True, 3.0)
    assert math.isclose(found.total, made.wall_s, rel_tol=0.02)
    assert found.parts["validation"] > 3 * 40 * 0.002 * 0.8


COUNTS = TRAIN.replace(
    "for x, y in training:", "drawn = iter(training)\n        for _ in range(len(training)):\n            x, y = next(drawn)"
)


@pytest.mark.thorough
def test_a_script_that_counts_its_batches_dies_of_the_cut_and_not_without(ran):
    arguments = (2, 100_000, 0)
    cut, _, said = ran(*arguments, source=COUNTS, until={"cut_s": 1.0, "stop_s": 90.0})
    assert (cut.code, "StopIteration" in said) == (1, True)
    made, lines, said = ran(*arguments, source=COUNTS, until={"cut_s": 1.0, "stop_s": 1.0})
    assert made.code == 0, said
    assert early(lines)[0]["turns"] == 0
    assert measured(made, Scale(batches=25_000.0)).step_s > 0.002


def test_what_became_of_the_workers_and_of_other_settings_is_known(ran):
    knobs = {"workers": "2", "channels_last": "on"}
    made, _, said = ran(8, 40, 0, knobs=knobs, until={"cut_s": 90.0, "stop_s": 120.0})
    assert made.code == 0, said
    found = measured(made, Scale(batches=10.0))
    assert found.workers["turns_kept"] >= 4, found.workers
    assert not found.workers["turns_fresh"], found.workers
    assert list(found.refused) == ["channels_last"]
    assert found.refused["channels_last"]
    assert not found.taken_back
    taken = {"kind": "taken-back", "knobs": ["workers"], "code": "slower-in-turn", "details": {"ratio": 0.9}}
    journals = [[*lines, taken] for lines in made.journals]
    assert measured(replace(made, journals=journals), Scale(batches=10.0)).taken_back == ["workers"]


@pytest.mark.thorough
def test_a_final_test_is_seen(ran):
    last = "    with torch.no_grad():\n        [net(x) for x, y in DataLoader(Data(1000), batch_size=4)]\n"
    made, _, said = ran(12, 200, 0, source=TRAIN.replace('    print("the end")', last), until={"cut_s": 90.0, "stop_s": 120.0})
    assert made.code == 0, said
    found = measured(made, Scale(batches=50.0))
    assert found.whole
    assert 1.8 < found.tail["validation"] < 4.0


LOOP = """
import torch
from torch import nn
net = nn.Linear(8, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
while True:
    loss = net(torch.ones(4, 8)).sum()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def test_a_loop_without_a_loader_ends_by_the_time(ran):
    made, lines, said = ran(source=LOOP, until={"cut_s": 1.0, "stop_s": 60.0})
    assert made.code == 0, said
    (line,) = early(lines)
    assert line["turns"] == 0
    found = measured(made, Scale(batches=None))
    assert found.parts["steps"] > 0
    assert not found.whole


def test_a_run_that_is_late_goes_on_until_something_is_known(ran):
    """Seen: the time was over while something was built, and the run told nothing."""
    slow = LOOP.replace("loss = net", "time.sleep(0.1); loss = net").replace("import torch\n", "import time, torch\n", 1)
    made, lines, said = ran(source=slow, until={"cut_s": 2.0, "stop_s": 1.4})
    assert made.code == 0, said
    assert early(lines)[0]["step"] >= 18
    assert not isinstance(measured(made, Scale(batches=None)), Missing)


@pytest.mark.thorough
def test_however_late_it_is_it_ends(ran):
    slow = LOOP.replace("loss = net", "time.sleep(0.4); loss = net").replace("import torch\n", "import time, torch\n", 1)
    made, lines, _ = ran(source=slow, until={"cut_s": 2.0, "stop_s": 1.0})
    assert made.code == 0
    assert early(lines)[0]["step"] < 12


def test_a_script_that_dies_is_no_measurement():
    made = RunMade(wall_s=2.0, code=3, journals=[])
    assert (measured(made, Scale(batches=None)).reason, measured(made, Scale(batches=None)).detail) == ("failed", "3")


@pytest.mark.calm
def test_what_comes_every_so_many_steps_is_counted_as_often_as_it_comes(ran):
    """Between the settling and the cut it came once or twice, by chance."""
    evaluates = LOOP.replace("while True:", "import time\nnumber = 0\nwhile True:\n    time.sleep(0.005)\n    number += 1", 1)
    evaluates += """
    if number % 90 == 0:
        net.eval(); time.sleep(0.2); net(torch.ones(4, 8)); net.train()
"""
    made, _, said = ran(source=evaluates, until={"cut_s": 1.0, "stop_s": 60.0})
    assert made.code == 0, said
    found = measured(made, Scale(batches=None))
    assert found.parts["validation"] < 0.01
    seen = found.recurring["validation"]
    assert seen.period == 90
    assert 0.2 <= seen.each_s < 0.3
    (with_it,) = with_recurring([found], [])
    assert with_it.parts["validation"] == pytest.approx(seen.each_s * 100 / 90)
