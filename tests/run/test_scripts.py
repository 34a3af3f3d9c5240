"""Small trainings with a known truth: what the clock must find, and what it must leave alone."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

from conftest import QUIET

LOOP = """
import time, torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, Dataset
torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""


@pytest.mark.alone
def test_planted_phases_are_found(flatout, script):
    """Sleeps in known places: every phase within five points of the wall time."""
    path = script(
        LOOP
        + """
class Slow(Dataset):
    def __len__(self): return 40
    def __getitem__(self, i): time.sleep(0.01); return torch.randn(8)
class SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): time.sleep(0.03); return x
    @staticmethod
    def backward(ctx, g): time.sleep(0.06); return g
class SlowSGD(torch.optim.SGD):
    def step(self, closure=None): time.sleep(0.02); return super().step(closure)
opt = SlowSGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for x in DataLoader(Slow(), batch_size=4):
        loss = SlowBackward.apply(net(x)).sum()
        opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        for x in DataLoader(Slow(), batch_size=8):
            net(x); time.sleep(0.04)
    time.sleep(0.25)
"""
    )
    summary = flatout("run", path).summary
    wall, phases = summary["wall_s"], summary["phases"]
    assert summary["steps"] == 20
    assert summary["samples"] == 80
    planted = {"input": 0.8, "forward": 0.6, "backward": 1.2, "optimizer": 0.4, "validation": 1.2, "script": 0.5}
    for phase, seconds in planted.items():
        assert abs(phases[phase] - seconds) < 0.05 * wall, (phase, phases)


@pytest.mark.thorough
def test_evaluation_with_gradients_on_is_not_training(flatout, script):
    path = script(
        LOOP
        + """
train, valid = DataLoader(TensorDataset(torch.randn(40, 8)), batch_size=4), DataLoader(TensorDataset(torch.randn(64, 8)), 8)
for (x,) in train:
    net(x).sum().backward(); opt.step(); opt.zero_grad()
total = 0
for (x,) in valid:
    total += net(x).sum().item(); time.sleep(0.05)
"""
    )
    summary = flatout("run", path).summary
    assert summary["steps"] == 10
    assert summary["samples"] == 40
    assert summary["phases"]["validation"] > 0.35


@pytest.mark.thorough
def test_accumulation_clipping_and_two_optimizers(flatout, script):
    path = script(
        LOOP
        + """
other = torch.optim.Adam(net.parameters(), lr=1e-3)
for i, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(80, 8)), batch_size=4)):
    net(x).sum().backward()
    if i % 4 == 3:
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step(); other.step(); opt.zero_grad()
"""
    )
    summary = flatout("run", path).summary
    assert (summary["steps"], summary["samples"]) == (5, 80)


@pytest.mark.thorough
def test_closures_hold_their_backward(flatout, script):
    path = script(
        LOOP
        + """
opt = torch.optim.LBFGS(net.parameters(), max_iter=4)
for (x,) in DataLoader(TensorDataset(torch.randn(40, 8)), batch_size=4):
    def closure():
        opt.zero_grad(); loss = net(x).pow(2).sum(); loss.backward(); time.sleep(0.01); return loss
    opt.step(closure)
"""
    )
    summary = flatout("run", path).summary
    assert (summary["steps"], summary["samples"]) == (10, 40)
    assert summary["phases"]["backward"] > 0


@pytest.mark.parametrize(
    ("loop", "steps", "note"),
    [
        pytest.param(
            "for _ in range(7):\n    net(torch.randn(4, 8)).sum().backward(); opt.step()",
            7,
            "samples-by-inputs",
            marks=pytest.mark.thorough,
        ),
        pytest.param(  # every time: sgd-by-hand in test_styles.py
            "for _ in range(7):\n    net(torch.randn(4, 8)).sum().backward()\n"
            "    for p in net.parameters(): p.data -= 0.1 * p.grad; p.grad = None",
            7,
            "clocked-by-backward",
            marks=pytest.mark.thorough,
        ),
        pytest.param("net(torch.randn(4, 8))", 0, "no-steps", marks=pytest.mark.thorough),
    ],
)
def test_what_is_not_found_is_said(loop, steps, note, flatout, script):
    summary = flatout("run", script(LOOP + loop)).summary
    assert summary["steps"] == steps
    assert note in [entry["code"] for entry in summary["notes"]]


def test_what_ended_before_its_first_step_trained_nowhere(flatout, script):
    ended = flatout("run", script("import torch\nimport no_such_module\n"))
    assert ended.returncode == 1
    codes = [note["code"] for note in ended.summary["notes"]]
    assert "ended-with-code" in codes
    assert "no-gpu" not in codes


def test_no_torch_at_all(flatout, script):
    ended = flatout("run", script("print('plain')"))
    assert ended.summary["steps"] == 0
    assert ended.summary["torch"]["version"] == {"reason": "not-imported", "detail": ""}
    assert "the script did not import torch" in " ".join(ended.stderr.split())


@pytest.mark.thorough
def test_asking_for_torch_before_importing_it(flatout, script):
    """As transformers and many others do."""
    path = script(
        "import importlib.util, sys\nassert importlib.util.find_spec('torch')\nassert 'torch' not in sys.modules\n"
        + LOOP
        + "net(torch.randn(4, 8)).sum().backward(); opt.step()\n"
        + "assert 'exec_module' not in vars(torch.__spec__.loader)\n"
        + "assert not [finder for finder in sys.meta_path if getattr(finder, '_name', '') == 'torch']\n"
    )
    ended = flatout("run", path)
    assert (ended.returncode, ended.summary["steps"]) == (0, 1)


def test_training_in_a_thread(flatout, script):
    path = script(
        LOOP
        + """
import threading
def work():
    for (x,) in DataLoader(TensorDataset(torch.randn(40, 8)), batch_size=4):
        net(x).sum().backward(); opt.step()
thread = threading.Thread(target=work); thread.start(); thread.join()
"""
    )
    assert flatout("run", path).summary["steps"] == 10


def test_workers_are_silent_and_leave_no_file(flatout, script):
    path = script(
        LOOP
        + """
if __name__ == "__main__":
    for context, workers in (("fork", 2), ("spawn", 1)):
        data = TensorDataset(torch.randn(16, 8))
        for (x,) in DataLoader(data, batch_size=4, num_workers=workers, multiprocessing_context=context):
            net(x).sum().backward(); opt.step()
"""
    )
    ended = flatout("run", path)
    assert ended.returncode == 0, ended.stderr
    assert ended.summary["steps"] == 8
    assert len(list(ended.run_folder.glob("journal-*"))) == 1


def test_killed_training_keeps_what_it_knew(flatout, script):
    path = script(
        LOOP
        + """
import os, signal
for i, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(400, 8)), batch_size=4)):
    net(x).sum().backward(); opt.step(); time.sleep(0.02)
    if i == 60: os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    ended = flatout("run", path)
    assert ended.returncode == -9
    assert 30 <= ended.summary["steps"] <= 61
    assert ended.summary["signal"] == 9
    assert "cut-short" in [note["code"] for note in ended.summary["notes"]]
    assert "ended by signal 9" in ended.stderr


def test_neither_process_loads_what_is_the_others(plain, script, tmp_path):
    """The script's has nothing of the front, and the front has no torch."""
    path = script(
        LOOP
        + """
import sys
for (x,) in DataLoader(TensorDataset(torch.randn(40, 8)), batch_size=4):
    net(x).sum().backward(); opt.step()
print(sorted({name.split(".")[0] for name in sys.modules}))
"""
    )
    code = (
        "import sys\n"
        "from flatout.cli import main\n"
        "try:\n    main.main(sys.argv[1:])\n"
        "finally:\n    print(sorted({name.split('.')[0] for name in sys.modules}))\n"
    )
    line = [sys.executable, "-c", code, "run", str(path)]
    ended = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, **QUIET}, check=False)
    ours, front = (set(json.loads(line.replace("'", '"'))) for line in ended.stdout.splitlines())
    alone = set(json.loads(plain(path).stdout.decode().replace("'", '"')))
    assert ours - alone == {"_flatout_agent"}
    assert not ours & {"flatout", "click", "rich", "msgspec", "textual"}
    assert "rich" in front
    assert "torch" not in front


def test_a_starved_loop_is_found_with_file_and_line(flatout, script):
    path = script(
        LOOP
        + """
class Slow(Dataset):
    def __len__(self): return 120
    def __getitem__(self, i): time.sleep(0.002); return torch.randn(8)
def make():
    return DataLoader(Slow(), batch_size=4)  # here
loader = make()
for x in loader:
    net(x).sum().backward(); opt.step(); opt.zero_grad()
"""
    )
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if text.endswith("# here"))
    ended = flatout("run", path)
    (use,) = ended.summary["loaders"]
    assert use["site"] == f"{path}:{line}"
    assert (use["workers"], use["batch_size"], use["batches"]) == (0, 4, 30)
    assert use["wait_s"] == pytest.approx(ended.summary["phases"]["input"], rel=0.05)
    (finding,) = ended.summary["findings"]
    assert (finding["name"], finding["evidence"]["site"]) == ("dataloader-bottleneck", use["site"])
    assert finding["evidence"]["share"] > 50
    assert "AP504 DataLoader at" in ended.stderr
    assert "num_workers=0" in ended.stderr


def test_a_busy_loop_has_no_findings(flatout, script):
    path = script(
        LOOP
        + """
for (x,) in DataLoader(TensorDataset(torch.randn(120, 8)), batch_size=4):
    time.sleep(0.01); net(x).sum().backward(); opt.step(); opt.zero_grad()
"""
    )
    assert flatout("run", path).summary["findings"] == []
