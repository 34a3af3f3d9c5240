"""What the agent costs a real training, interleaved inside one process: overhead.py SECONDS OUT.json

`examples/behavior.py` trains as it is. Every BLOCK steps the device is synchronised, the block's time noted, and the
agent is put on or taken off: off on on off, again and again, so that drift cancels. The slow-down of each such four is
one observation; the interval is a bootstrap over them.
"""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from statistics import mean

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from _flatout_agent.start import Agent, install

BLOCK = 40
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
        self.blocks: list[tuple[bool, float]] = []  # (agent on, seconds), in order
        self.on = False

    def __iter__(self):
        batches = iter(self.loader)
        began = 0.0
        while True:
            synchronize()
            now = time.perf_counter()
            if began:
                self.blocks.append((self.on, now - began))
            if now > self.end:
                return
            self.switch(PATTERN[len(self.blocks) % 4])
            began = time.perf_counter()
            for _ in range(BLOCK):
                yield next(batches)

    def switch(self, wanted: bool) -> None:
        if wanted and not self.on:
            install(torch, self.agent.clock, self.agent.patches)
        elif self.on and not wanted:
            self.agent.patches.take_off()
        self.on = wanted


def measure(seconds: float) -> list[tuple[bool, float]]:
    small = not torch.cuda.is_available()
    args = Namespace(small=small, train_size=10**7, steps=-1, epochs=1, batch_size=None, out=tempfile.mkdtemp())
    torch.manual_seed(0)
    trainer = specimen().Trainer({}, args)
    trainer.train_loader = Blocks(trainer.train_loader, seconds)
    trainer.train_epoch()
    return trainer.train_loader.blocks


def slow_downs(blocks: list[tuple[bool, float]]) -> list[float]:
    """One ratio per four blocks, the first four left out: they pay for warming up."""
    fours = [blocks[i : i + 4] for i in range(4, len(blocks) - 3, 4)]
    return [sum(t for on, t in four if on) / sum(t for on, t in four if not on) - 1 for four in fours]


def main() -> None:
    seconds, out = float(sys.argv[1]), Path(sys.argv[2])
    blocks = measure(seconds)
    ratios = slow_downs(blocks)
    chance = random.Random(0)
    means = sorted(mean(chance.choices(ratios, k=len(ratios))) for _ in range(4000))
    plain = [t / BLOCK for on, t in blocks[4:] if not on]
    record = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
        "blocks": len(blocks),
        "steps_a_block": BLOCK,
        "fours": len(ratios),
        "step_ms": mean(plain) * 1e3,
        "slow_down": mean(ratios),
        "low_95": means[int(0.025 * len(means))],
        "high_95": means[int(0.975 * len(means))],
        "upper_95_one_sided": means[int(0.95 * len(means))],
    }
    out.write_text(json.dumps(record, indent=1))
    print(json.dumps(record))


if __name__ == "__main__":
    main()
