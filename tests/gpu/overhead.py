"""What the agent costs a real training, interleaved inside one process: overhead.py SECONDS OUT.json

`examples/behavior.py` trains as it is. Every BLOCK steps the device is synchronised and the agent is put on or taken
off: off on on off, again and again, so that drift cancels. Each such four gives one observation of the slow-down, from
the median step of its on- and off-blocks (what else the machine does in between hits single steps, and would drown
half a per cent); the interval is a bootstrap over the observations. The ratio of the plain means is given beside it.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from statistics import mean, median

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from _flatout_agent.start import Agent, install

BLOCK = 60
SETTLE = 10
PATTERN = (False, True, True, False)


def specimen():
    spec = importlib.util.spec_from_file_location("behavior", ROOT / "examples" / "behavior.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def synchronize():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Blocks:
    """Stands for the training loader: between blocks it notes the time and puts the agent on or takes it off."""

    def __init__(self, loader, seconds: float) -> None:
        self.loader = loader
        self.end = time.perf_counter() + seconds
        self.agent = Agent({"run_dir": tempfile.mkdtemp(), "spawned": time.time()})
        self.blocks: list[tuple[bool, list[float]]] = []  # (agent on, seconds of each step), in order
        self.on = False

    def __iter__(self):
        batches = iter(self.loader)
        while time.perf_counter() < self.end:
            self.switch(PATTERN[len(self.blocks) % 4])
            synchronize()
            times = [time.perf_counter()]
            for _ in range(BLOCK):
                yield next(batches)
                times.append(time.perf_counter())
            # The first steps after a switch pay for Python's caches, which the switch itself emptied.
            steps = [after - before for before, after in itertools.pairwise(times)][SETTLE:]
            self.blocks.append((self.on, steps))

    def switch(self, wanted: bool) -> None:
        if wanted and not self.on:
            install(torch, self.agent.clock, self.agent.patches)
        elif self.on and not wanted:
            self.agent.patches.take_off()
        self.on = wanted


def measure(seconds: float) -> list[tuple[bool, list[float]]]:
    small = not torch.cuda.is_available()
    args = Namespace(small=small, train_size=10**7, steps=-1, epochs=1, batch_size=None, out=tempfile.mkdtemp())
    torch.manual_seed(0)
    trainer = specimen().Trainer({}, args)
    trainer.train_loader = Blocks(trainer.train_loader, seconds)
    trainer.train_epoch()
    return trainer.train_loader.blocks


def slow_downs(blocks: list[tuple[bool, list[float]]], average) -> list[float]:
    """One ratio per four blocks, the first four left out: they pay for warming up."""
    fours = [blocks[i : i + 4] for i in range(4, len(blocks) - 3, 4)]

    def of(four, wanted):
        return average([t for on, steps in four if on is wanted for t in steps])

    return [of(four, True) / of(four, False) - 1 for four in fours]


def main() -> None:
    seconds, out = float(sys.argv[1]), Path(sys.argv[2])
    blocks = measure(seconds)
    ratios = slow_downs(blocks, median)
    chance = random.Random(0)
    means = sorted(mean(chance.choices(ratios, k=len(ratios))) for _ in range(4000))
    plain = [t for on, steps in blocks[4:] if not on for t in steps]
    record = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
        "steps": len(blocks) * BLOCK,
        "fours": len(ratios),
        "step_ms_median": median(plain) * 1e3,
        "step_ms_mean": mean(plain) * 1e3,
        "slow_down": mean(ratios),
        "low_95": means[int(0.025 * len(means))],
        "high_95": means[int(0.975 * len(means))],
        "upper_95_one_sided": means[int(0.95 * len(means))],
        "slow_down_of_means": mean(slow_downs(blocks, mean)),
    }
    out.write_text(json.dumps({**record, "blocks": [(on, [round(t * 1e6) for t in steps]) for on, steps in blocks]}))
    print(json.dumps(record))


if __name__ == "__main__":
    main()
