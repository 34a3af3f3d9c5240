"""The largest safe batch of one specimen under a cap: true, flatout's, Lightning's. batch_fit.py SPECIMEN [RECORD.json]

1. flatout: `flatout tune --batch fit --only batch_size`, its time taken from the journal, part by part.
2. The truth: sizes in children of their own, some at a time (each under its own cap), round after round between the largest
   that held and the smallest that did not; then every neighbour of the end, so that a size that only happens to run is seen.
3. Lightning's `Tuner.scale_batch_size` on the same model, data, optimizer and cap, in both its modes.
4. 500 further steps of the unmodified script at flatout's size: `flatout run --gpu-memory-fraction F SCRIPT --batch-size N`.

Without a card, `--imitate N` stands for one: a hook raises torch's own OutOfMemoryError for batches above N, in the specimen's
small model. That shows that the script works, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
NAMES = ("vision", "restoration")
GIB = 2**30
HEADROOM = 0.04  # as flatout leaves it below a cap
LARGEST = 4096
AT_ONCE = 7
NEIGHBOURS = 3  # beyond the end, on either side
STEPS = 6  # of a probe: cuDNN's choices and the optimizer's state are there after two
PROBE_S, FLATOUT_S, FINDER_S, AFTER_S = 90, 150, 180, 420
BUDGET = "45s"

# One size in a process of its own, as the script itself trains: whether it runs, what it reserves, second tries.
ONE = """
import json, runpy, sys, torch
fraction, script, *arguments = sys.argv[1:]
if float(fraction):
    torch.cuda.set_per_process_memory_fraction(float(fraction))
sys.argv = [script, *arguments]
told = {"ran": True, "peak": 0, "retries": 0}
try:
    runpy.run_path(script, run_name="__main__")
except torch.OutOfMemoryError:
    told["ran"] = False
if float(fraction):
    books = torch.cuda.memory_stats()
    told["peak"], told["retries"] = books["reserved_bytes.all.peak"], books["num_alloc_retries"]
print("TOLD" + json.dumps(told))
"""

# The finder wants a LightningModule: the specimen's own model, data, loss and optimizer in the smallest one that trains.
FINDER = """
import json, sys, time, torch
fraction, examples, name, mode, imitated = sys.argv[1:]
sys.path.insert(0, examples)
small = int(imitated)
if float(fraction):
    torch.cuda.set_per_process_memory_fraction(float(fraction))
import lightning as L
from lightning.pytorch.tuner import Tuner
from torch.nn import functional as F
from torch.utils.data import DataLoader

if name == "restoration":
    import restoration as specimen
    channels, blocks, side = (8, 1, 48) if small else (32, 4, 128)
    model, data, rate = specimen.Restorer(channels, blocks), specimen.Patches(4000, side), 1e-4
    loss_of = lambda model, batch: F.l1_loss(model(batch[0]), batch[1])
else:
    import vision as specimen
    depths, dims, side = specimen.SIZES["micro" if small else "tiny"]
    model, data, rate = specimen.ConvNet(depths, dims, 100), specimen.Images(8192, side, 100), 3e-4
    loss_of = lambda model, batch: F.cross_entropy(model(batch[0]), batch[1], label_smoothing=0.1)

class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model, self.batch_size = model, 2
    def training_step(self, batch, number):
        if small and len(batch[0]) > small:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")  # as torch words it; Lightning reads it
        return loss_of(self.model, batch)
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=rate)
    def train_dataloader(self):
        return DataLoader(data, batch_size=self.batch_size, shuffle=True, drop_last=True)

module = Module()
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer = L.Trainer(max_epochs=1, accelerator="cpu" if small else "gpu", devices=1, **quiet)
began = time.perf_counter()
size = Tuner(trainer).scale_batch_size(module, mode=mode)
print("TOLD" + json.dumps({"mode": mode, "size": size, "seconds": time.perf_counter() - began}))
"""

# The specimen's small model on a card that ends at a batch size.
IMITATED = """
import runpy, sys, torch
def card(module, inputs):
    if inputs and isinstance(inputs[0], torch.Tensor) and len(inputs[0]) > {card}:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
if __name__ == "__main__":
    torch.nn.modules.module.register_module_forward_pre_hook(card)
    sys.argv[1:1] = ["--small"]
    runpy.run_path({script!r}, run_name="__main__")
"""


# -- what can be said without a machine ------------------------------------------------------------------------------------


def spread(low, high, count):
    """So many sizes between a size that holds and one that does not: a grid of equal ratios while they are far apart."""
    if high - low <= count + 1:
        return list(range(low + 1, high))
    if high > 2 * low:
        from_one = max(1, low)
        found = {round(from_one * (high / from_one) ** (k / (count + 1))) for k in range(1, count + 1)}
    else:
        found = {low + round((high - low) * k / (count + 1)) for k in range(1, count + 1)}
    return sorted(size for size in found if low < size < high)


def largest_that(holds, begin, count=AT_ONCE, largest=LARGEST):
    """The largest size for which `holds(sizes)` says yes, with its neighbours asked one by one; and all that was asked.

    `strange`: sizes below the end that do not hold, or above it that do.
    """
    # Near what was given first: it is an answer that only needs to be confirmed or moved a little.
    near = (begin, begin + 1, begin + 2, round(1.05 * begin), round(1.1 * begin), round(1.25 * begin), 2 * begin)
    first = sorted({size for size in near if size <= largest})
    known = dict(zip(first, holds(first), strict=True))
    low = max((size for size in first if known[size]), default=0)
    high = min((size for size in first if size > low and not known[size]), default=largest + 1)
    while high - low > 1:
        sizes = spread(low, high, count)
        known.update(zip(sizes, holds(sizes), strict=True))
        low = max((size for size in sizes if known[size]), default=low)
        high = min((size for size, held in known.items() if size > low and not held), default=high)
    around = [size for size in range(max(1, low - NEIGHBOURS), low + NEIGHBOURS + 2) if size not in known]
    if low and around:
        known.update(zip(around, holds(around), strict=True))
    strange = sorted(size for size, held in known.items() if held is (size > low))
    return {"size": low, "asked": sorted(known), "strange": strange}


def parts_of(lines):
    """Seconds of a search by what they were for, from the lines of its journal."""
    parts = {"start": 0.0, "baseline": 0.0, "probes": 0.0, "proof": 0.0, "rest": 0.0}
    for line in lines:
        segment, result = line.get("segment"), line.get("result")
        parts["start"] += (line.get("plan") or {}).get("looked_s", 0.0)
        if segment is None:
            continue
        if segment["stage"] == "batch":
            name = "proof" if segment.get("through_epoch") else "probes"
        else:
            name = "baseline" if segment["stage"] == "baseline" else "rest"
        parts[name] += result["took_s"]
    return {name: round(seconds, 2) for name, seconds in parts.items()}


def verdicts(record):
    """What the issue asks for, each with its figures; None where a part is missing."""
    ours, true, finders = record["flatout"], record["true"], [one for one in record["lightning"] if one]
    fastest = min((one["seconds"] for one in finders), default=None)
    # Both from a script that has started and taken its first steps: Lightning's figure has no start in it either.
    after, known = record["after"], ours["parts"]["baseline"] + ours["parts"]["probes"]
    share = ours["size"] / true["size"] if true["size"] else None
    fits = ours["size"] / true["ran"] if true["ran"] else None
    return {
        "seconds_until_found": known,
        "seconds_with_start": known + ours["parts"]["start"],
        "seconds_with_proof": known + ours["parts"]["proof"],
        "share_of_largest_safe": share,
        "share_of_largest_that_ran": fits,
        "at_least_0.95": None if share is None else share >= 0.95,
        "never_more_than_fits": None if not true["ran"] else ours["size"] <= true["ran"],
        "quarter_of_lightning_until_found": None if fastest is None else known <= fastest / 4,
        "quarter_of_lightning_with_proof": None if fastest is None else known + ours["parts"]["proof"] <= fastest / 4,
        "500_steps_without_oom": None if after is None else after["steps"] == after["asked"] and not after["out_of_memory"],
        "no_allocator_retries": None if after is None or after["retries"] is None else after["retries"] == 0,
    }


def table(record):
    ours, true = record["flatout"], record["true"]
    rows = [("", "batch", "seconds"), ("largest that ran", true["ran"], round(true["seconds"], 1))]
    rows.append((f"largest safe ({HEADROOM:.0%} left)", true["size"], ""))
    for name, seconds in ours["parts"].items():
        rows.append((f"flatout: {name}", ours["size"] if name == "proof" else "", seconds))
    rows += [(f"Lightning {one['mode']}", one["size"], round(one["seconds"], 1)) for one in record["lightning"] if one]
    for name, value in record["verdicts"].items():
        rows.append((name, "?" if value is None else value if isinstance(value, bool) else f"{value:.3f}", ""))
    return "\n".join(f"{first:38}{second!s:>10}{third!s:>10}" for first, second, third in rows)


# -- children ---------------------------------------------------------------------------------------------------------------


class Sitting:
    """One specimen under one cap, in a folder of its own."""

    def __init__(self, name, fraction, cap, imitate, folder, budget=BUDGET):
        self.budget, self.name, self.fraction, self.cap, self.imitate, self.folder = (
            budget,
            name,
            fraction,
            cap,
            imitate,
            Path(folder),
        )
        self.script = EXAMPLES / f"{name}.py"
        if imitate:
            self.script = self.folder / f"imitated_{name}.py"
            text = IMITATED.format(card=imitate, script=str(EXAMPLES / f"{name}.py"))
            self.script.write_text(text, encoding="utf-8")
        self.probes = {}
        here = os.environ.get("PYTHONPATH")
        self.environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *([here] if here else [])])}

    def told(self, program, *arguments, limit_s):
        """What a program says in its last line, or None: it died, or took too long."""
        place = tempfile.mkdtemp(dir=self.folder)
        command = [sys.executable, "-c", program, str(self.fraction or 0), *map(str, arguments)]
        environ = {**self.environ, "OMP_NUM_THREADS": "2"} if program is ONE else self.environ  # several at a time
        try:
            ended = subprocess.run(
                command, cwd=place, capture_output=True, text=True, timeout=limit_s, env=environ, check=False
            )
        except subprocess.TimeoutExpired:
            return None
        lines = [line for line in ended.stdout.splitlines() if line.startswith("TOLD")]
        if not lines:
            print(ended.stderr[-600:], file=sys.stderr)
        return json.loads(lines[-1].removeprefix("TOLD")) if lines else None

    def probe(self, size):
        if size not in self.probes:
            arguments = [self.script, "--steps", STEPS, "--epochs", 1000, "--batch-size", size]
            self.probes[size] = self.told(ONE, *arguments, limit_s=PROBE_S)
        return self.probes[size]

    def ran(self, sizes):
        with ThreadPoolExecutor(1 if self.imitate else AT_ONCE) as pool:
            found = list(pool.map(self.probe, sizes))
        return [bool(one and one["ran"] and not one["retries"]) for one in found]

    def safe(self, sizes):
        ran = self.ran(sizes)
        return [held and self.probes[size]["peak"] <= self.cap * (1 - HEADROOM) for size, held in zip(sizes, ran, strict=True)]

    def flatout(self, *arguments, limit_s):
        command = [sys.executable, "-m", "flatout", *map(str, arguments)]
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=limit_s, env=self.environ, check=False
        )

    def search(self):
        capped = ["--gpu-memory-fraction", self.fraction] if self.fraction else []
        own = {"vision": 64, "restoration": 16}[self.name]
        flag = ["--batch-arg", "--batch-size"] if self.imitate else []
        said = ["--batch-size", own] if self.imitate else []
        began = time.perf_counter()
        ended = self.flatout("tune", "--batch", "fit", "--only", "batch_size", *capped, *flag, "--no-parity", "--json",
                             "--budget", self.budget, self.script, "--epochs", 1000, *said, limit_s=FLATOUT_S)  # fmt: skip
        took = time.perf_counter() - began
        if ended.returncode:
            raise SystemExit(ended.stderr[-3000:])
        story = json.loads(ended.stdout)["batch"]
        journal = max(self.folder.glob(".flatout/runs/*/tune.jsonl"))
        lines = [json.loads(line) for line in journal.read_text(encoding="ascii").splitlines()]
        (self.folder / "flatout.toml").unlink(missing_ok=True)
        return {"size": story["size"], "own": story["own"], "proved": story["proved"], "epoch_seen": story["epoch_seen"],
                "probes": story["probes"], "memory_limit": story["memory_limit"], "headroom": story["headroom"],
                "parts": parts_of(lines), "whole_s": round(took, 1)}  # fmt: skip

    def after(self, size, steps):
        capped = ["--gpu-memory-fraction", self.fraction] if self.fraction else []
        workers = [] if self.imitate else ["--knob", "workers=6"]  # 500 steps in less time; on the card nothing changes
        ended = self.flatout("run", "--no-profile", *workers, *capped, self.script, "--batch-size", size, "--steps", steps,
                             "--epochs", 1000, limit_s=AFTER_S)  # fmt: skip
        runs = sorted(self.folder.glob(".flatout/runs/*/summary.json"))
        if not runs:
            print(ended.stderr[-2000:], file=sys.stderr)
            return None
        summary = json.loads(runs[-1].read_text(encoding="utf-8"))
        memory = (summary.get("device") or {}).get("memory") or {}
        retries = memory.get("retries", 0) if memory else None  # what is 0 is not written
        return {"asked": steps, "steps": summary["steps"], "exit": ended.returncode, "memory": memory,
                "out_of_memory": summary["out_of_memory"] is not None, "retries": retries}  # fmt: skip


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specimen", choices=NAMES)
    parser.add_argument("record", nargs="?")
    parser.add_argument("--cap-gib", type=float, default=6.0)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--safe-only", action="store_true", help="not the largest that runs with no room left")
    parser.add_argument("--modes", default="binsearch,power")
    parser.add_argument("--budget", default=BUDGET)
    parser.add_argument("--imitate", type=int, default=0, metavar="SIZE")
    asked = parser.parse_args(arguments)
    cap, fraction, card = asked.cap_gib * GIB, None, f"imitated, ends at {asked.imitate}"
    if not asked.imitate:
        import torch

        card = torch.cuda.get_device_name()
        fraction = cap / torch.cuda.get_device_properties(0).total_memory
    with tempfile.TemporaryDirectory() as folder:
        sitting = Sitting(asked.specimen, fraction, cap, asked.imitate, folder, asked.budget)
        ours = sitting.search()
        print(json.dumps({"flatout": ours["size"], "parts": ours["parts"], "whole_s": ours["whole_s"]}), flush=True)
        modes = [mode for mode in asked.modes.split(",") if mode]
        lightning = [sitting.told(FINDER, EXAMPLES, asked.specimen, mode, asked.imitate, limit_s=FINDER_S) for mode in modes]
        print(json.dumps({"lightning": lightning}), flush=True)
        # Beside the probes, which have caps of their own: neither of them is timed.
        later = ThreadPoolExecutor(1).submit(sitting.after, ours["size"], asked.steps)
        if asked.imitate:
            later.result()
        began = time.perf_counter()
        most = 2 * asked.imitate if asked.imitate else LARGEST
        safe = largest_that(sitting.safe, ours["size"], largest=most)
        ran = {"size": 0, "strange": []} if asked.safe_only else largest_that(sitting.ran, max(1, safe["size"]), largest=most)
        true = {"size": safe["size"], "ran": ran["size"], "strange": safe["strange"] + ran["strange"],
                "probes": {size: sitting.probes[size] for size in sorted(sitting.probes)},
                "seconds": time.perf_counter() - began}  # fmt: skip
        print(json.dumps({"true": true["size"], "ran": true["ran"], "probed": len(sitting.probes)}), flush=True)
        after = later.result()
    record = {"specimen": asked.specimen, "card": card, "cap": int(cap), "fraction": fraction, "flatout": ours,
              "lightning": lightning, "true": true, "after": after}  # fmt: skip
    record["verdicts"] = verdicts(record)
    if asked.record:
        Path(asked.record).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(table(record))


if __name__ == "__main__":
    main()
