"""The batch size under a cap of 6 GiB: against exhaustive probing and Lightning's finder. Run with `pytest -m gpu`.

A cap on a large card imitates the memory of a small one, not its speed. Figures are printed, so that a sitting can be kept.
"""

import json
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")

from conftest import EXAMPLES

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

CAP = 6 * 2**30
HEADROOM = 0.08
NAMES = ["restoration", "vision"]

# One size in a process of its own, as the script itself trains: whether it runs, what it reserves, second tries.
ONE = """
import json, runpy, sys, torch
fraction, script, *arguments = sys.argv[1:]
torch.cuda.set_per_process_memory_fraction(float(fraction))
sys.argv = [script, *arguments]
told = {"ran": True}
try:
    runpy.run_path(script, run_name="__main__")
except torch.cuda.OutOfMemoryError:
    told["ran"] = False
books = torch.cuda.memory_stats()
told["peak"], told["retries"] = books["reserved_bytes.all.peak"], books["num_alloc_retries"]
print("TOLD" + json.dumps(told))
"""

# The finder wants a LightningModule: the specimen's own model, data and loss in the smallest one that trains.
FINDER = """
import json, sys, time, torch
sys.path.insert(0, sys.argv[2])
torch.cuda.set_per_process_memory_fraction(float(sys.argv[1]))
import lightning as L
from lightning.pytorch.tuner import Tuner
from torch.nn import functional as F
from torch.utils.data import DataLoader

if sys.argv[3] == "restoration":
    import restoration as specimen
    make_model, make_data = lambda: specimen.Restorer(32, 4), lambda: specimen.Patches(4000, 128)
    loss_of = lambda model, batch: F.l1_loss(model(batch[0]), batch[1])
else:
    import vision as specimen
    depths, dims, side = specimen.SIZES["tiny"]
    make_model, make_data = lambda: specimen.ConvNet(depths, dims, 100), lambda: specimen.Images(8192, side, 100)
    loss_of = lambda model, batch: F.cross_entropy(model(batch[0]), batch[1], label_smoothing=0.1)

class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model, self.batch_size = make_model(), 2
    def training_step(self, batch, number):
        return loss_of(self.model, batch)
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)
    def train_dataloader(self):
        return DataLoader(make_data(), batch_size=self.batch_size, shuffle=True, drop_last=True)

module = Module()
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer = L.Trainer(max_epochs=1, accelerator="gpu", devices=1, **quiet)
began = time.perf_counter()
size = Tuner(trainer).scale_batch_size(module, mode="binsearch")
print("TOLD" + json.dumps({"size": size, "seconds": time.perf_counter() - began}))
"""


def fraction():
    return CAP / torch.cuda.get_device_properties(0).total_memory


def told(program, *arguments, folder):
    command = [sys.executable, "-c", program, str(fraction()), *map(str, arguments)]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("TOLD")]
    return json.loads(lines[-1].removeprefix("TOLD")) if lines else None


def is_safe(name, size, folder):
    found = told(ONE, EXAMPLES / f"{name}.py", "--steps", 30, "--batch-size", size, folder=folder)
    return bool(found and found["ran"] and not found["retries"] and found["peak"] <= CAP * (1 - HEADROOM))


def largest_safe(name, folder):
    """Doubling, then every size between by halving: as exhaustive as whole processes allow."""
    low = 16
    while is_safe(name, 2 * low, folder):
        low *= 2
    high = 2 * low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_safe(name, middle, folder) else (low, middle)
    return low


@pytest.mark.parametrize("name", NAMES)
def test_the_largest_safe_batch_under_six_gibibytes(name, flatout, tmp_path):
    began = time.perf_counter()
    ended = flatout("tune", "--batch", "fit", "--only", "batch_size", "--gpu-memory-fraction", fraction(), "--no-parity",
                    "--budget", "120s", "--json", EXAMPLES / f"{name}.py", timeout=600)  # fmt: skip
    took = time.perf_counter() - began
    assert ended.returncode == 0, ended.stderr
    end = json.loads(ended.stdout)
    story = end["batch"]
    journal = next(tmp_path.glob(".flatout/runs/*/tune.jsonl"))
    lines = [json.loads(line) for line in journal.read_text(encoding="ascii").splitlines()]
    probing = [line["result"]["took_s"] for line in lines if (line.get("segment") or {}).get("stage") == "batch"]
    folder = tmp_path / "exhaustive"
    folder.mkdir()
    largest = largest_safe(name, folder)
    finder = told(FINDER, EXAMPLES, name, folder=folder)
    print(json.dumps({"name": name, "found": story["size"], "largest": largest, "probing_s": sum(probing), "whole_s": took,
                      "lightning": finder, "probes": [probe["size"] for probe in story["probes"]]}))  # fmt: skip
    assert story["size"] >= 0.95 * largest
    assert story["size"] <= largest + 1
    if finder is not None:
        assert sum(probing) <= finder["seconds"] / 4
    # And 500 steps more, by the profile that was written: no allocator's second try, no end of the memory.
    after = flatout("run", "--json", "--gpu-memory-fraction", fraction(), EXAMPLES / f"{name}.py", "--steps", 500,
                    "--epochs", 1000, "--batch-size", story["size"], timeout=600, cwd=folder)  # fmt: skip
    assert after.returncode == 0, after.stderr[-2000:]
    summary = json.loads(after.stderr[after.stderr.index("\n{") :])
    assert summary["steps"] == 500
    assert summary["out_of_memory"] is None
    memory = summary["device"]["memory"] if "memory" in summary["device"] else summary["device"]
    print(json.dumps({"after": memory}))


@pytest.mark.parametrize("name", ["gpt"])
def test_growing_says_how_fast_it_learns(name, flatout):
    ended = flatout("tune", "--batch", "grow", "--lr-rule", "sqrt", "--only", "batch_size", "--budget", "240s", "--no-parity",
                    "--json", EXAMPLES / f"{name}.py", "--steps", 100000, timeout=900)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    story = json.loads(ended.stdout)["batch"]
    print(json.dumps({"name": name, **story}))
    assert story["size"] >= story["own"]
    assert story["time_to_loss"] is not None
