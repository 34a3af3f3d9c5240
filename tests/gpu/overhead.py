"""What the agent costs a real training, interleaved inside one process: overhead.py SECONDS OUT.json [MILLISECONDS]

`examples/behavior.py` trains as it is; with MILLISECONDS, a plain network of as many small layers as make a step that
long, so that the host is what holds it up and nothing hides the agent. It trains first some seconds with the agent on, as
every run begins. Then, every BLOCK steps, the agent is lifted or put back: off on on off, again and again. The blocks are
short because a shared machine's speed wanders by several per cent within a second: neighbours wander together. Each four
gives one observation, the log
of the ratio of its on- to its off-time; the estimate is their mean without the most extreme twentieth at either end
(one hiccup would drown half a per cent), the interval a bootstrap of that estimate. The ratio of the plain sums is
given beside it, and whether the observers on tensors were at rest (see hook_suspension.py and step_sampling.py).
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import random
import sys
import tempfile
import time
from argparse import Namespace
from itertools import pairwise
from math import exp, log
from pathlib import Path
from statistics import mean

import torch
from torch.optim import optimizer
from torch.utils.data import dataloader

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from _flatout_agent.start import Agent, install

BLOCK = 2
WARM = 80  # blocks left out at the start
PATTERN = (False, True, True, False)


def specimen():
    spec = importlib.util.spec_from_file_location("behavior", ROOT / "examples" / "behavior.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def synchronize():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def quietest(count: int = 4) -> None:
    """On a shared machine some cores have noisy neighbours: stay on those where a fixed loop wanders least."""
    spread = {}
    for core in sorted(os.sched_getaffinity(0)):
        os.sched_setaffinity(0, {core})
        times = []
        for _ in range(60):
            began = time.perf_counter_ns()
            sum(range(100_000))
            times.append(time.perf_counter_ns() - began)
        spread[core] = mean(times)
    os.sched_setaffinity(0, set(sorted(spread, key=lambda core: spread[core])[:count]))


class Blocks:
    """Stands for the training loader: between blocks it notes the time and puts the agent on or takes it off."""

    def __init__(self, loader, seconds: float) -> None:
        self.loader = loader
        self.end = time.perf_counter() + seconds
        self.agent = Agent({"run_dir": tempfile.mkdtemp(), "spawned": time.time()})
        self.blocks: list[tuple[bool, float]] = []  # (agent on, seconds), in order
        self.steps: list[list[int]] = []  # per block: nanoseconds of each step, then of the thread's processor time
        self.on = False
        self.glanced = 0  # blocks with the agent on whose steps were only glanced at, most of them

    def __iter__(self):
        batches = iter(self.loader)
        yield from self.settled(batches)
        while time.perf_counter() < self.end:
            self.switch(PATTERN[len(self.blocks) % 4])
            synchronize()
            began, marks, processor = time.perf_counter(), [], time.thread_time_ns()
            for _ in range(BLOCK):
                marks.append(time.perf_counter_ns())
                yield next(batches)
            marks.append(time.perf_counter_ns())
            processor = time.thread_time_ns() - processor
            synchronize()
            self.blocks.append((self.on, time.perf_counter() - began))
            self.glanced += self.on and self.agent.tape.glancing
            self.steps.append([after - before for before, after in pairwise(marks)] + [processor])

    def settled(self, batches):
        """The agent is put on once, and has its first look at the tensors; the rest of a run is what is measured."""
        self.tensors = install(torch, self.agent.tape, self.agent.patches)
        self.step_hooks = self.agent.tape.glances.steps
        until, latest = time.perf_counter() + 9, time.perf_counter() + 30
        while time.perf_counter() < until or not (self.agent.tape.glancing or time.perf_counter() > latest):
            yield next(batches)
        self.on = True
        self.switch(False)

    def switch(self, wanted: bool) -> None:
        """The same functions each time: they are lifted and put back, as for a compilation; those that rest, rest."""
        places = (optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks)
        backward, whole = self.step_hooks.on_backward, self.agent.tape.whole
        if wanted and not self.on:
            for hooks, kept in zip(places, self.hooks, strict=True):
                hooks.update(kept)
            dataloader._BaseDataLoaderIter.__next__ = self.next
            self.tensors.put_back()
            if whole:
                backward.put_back()
        elif self.on and not wanted:
            self.hooks = tuple(dict(hooks) for hooks in places)
            for hooks in places:
                hooks.clear()
            self.next = dataloader._BaseDataLoaderIter.__next__
            dataloader._BaseDataLoaderIter.__next__ = self.next.__wrapped__
            self.tensors.lift()
            backward.lift()
        self.on = wanted
        gc.collect(0)  # what the switch left behind is not the next block's


class Layers:
    """A loop that launches small kernels, one after the other: its step takes as long as the host needs for them."""

    def __init__(self, depth: int) -> None:
        torch.manual_seed(0)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        blocks = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(depth)]
        self.model = torch.nn.Sequential(*blocks, torch.nn.Linear(64, 10)).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        data = torch.utils.data.TensorDataset(torch.randn(4096, 64), torch.randint(0, 10, (4096,)))
        everything = torch.utils.data.RandomSampler(data, replacement=True, num_samples=10**9)
        self.train_loader = torch.utils.data.DataLoader(data, batch_size=32, sampler=everything)

    def train_epoch(self) -> None:
        for x, y in self.train_loader:
            x, y = x.to(self.device), y.to(self.device)
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def step_ms(self, steps: int = 60) -> float:
        batches, loader = iter(self.train_loader), self.train_loader
        times = []
        for count in (steps, steps):  # the first ones are for warming up
            self.train_loader = [next(batches) for _ in range(count)]
            synchronize()
            began = time.perf_counter()
            self.train_epoch()
            synchronize()
            times.append((time.perf_counter() - began) / count * 1e3)
        self.train_loader = loader
        return times[-1]


def layers_for(milliseconds: float) -> Layers:
    depth = 8
    for _ in range(3):
        depth = max(1, round(depth * milliseconds / Layers(depth).step_ms()))
    return Layers(depth)


def behavior() -> object:
    small = not torch.cuda.is_available()
    args = Namespace(small=small, train_size=10**7, steps=-1, epochs=1, batch_size=None, out=tempfile.mkdtemp())
    torch.manual_seed(0)
    return specimen().Trainer({}, args)


def measure(trainer: object, seconds: float) -> tuple[list[tuple[bool, float]], list[list[int]], bool, float]:
    trainer.train_loader = Blocks(trainer.train_loader, seconds)
    trainer.train_epoch()
    watched = trainer.train_loader
    return watched.blocks[WARM:], watched.steps[WARM:], watched.tensors.resting, 2 * watched.glanced / len(watched.blocks)


def slow_downs(blocks: list[tuple[bool, float]]) -> list[float]:
    fours = [blocks[i : i + 4] for i in range(0, len(blocks) - 3, 4)]
    return [log(sum(t for on, t in four if on) / sum(t for on, t in four if not on)) for four in fours]


def trimmed(values: list[float]) -> float:
    cut = len(values) // 20
    return exp(mean(sorted(values)[cut : len(values) - cut])) - 1


def main() -> None:
    seconds, out, *wanted = float(sys.argv[1]), Path(sys.argv[2]), *map(float, sys.argv[3:])
    quietest()
    blocks, steps, resting, glancing = measure(layers_for(*wanted) if wanted else behavior(), seconds)
    logs = slow_downs(blocks)
    chance = random.Random(0)
    means = sorted(trimmed(chance.choices(logs, k=len(logs))) for _ in range(2000))
    within, without = (sum(t for on, t in blocks if on is wanted) for wanted in (True, False))
    record = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "steps": len(blocks) * BLOCK,
        "fours": len(logs),
        "step_ms": 2 * without / (len(blocks) * BLOCK) * 1e3,
        "slow_down": trimmed(logs),
        "low_95": means[int(0.025 * len(means))],
        "high_95": means[int(0.975 * len(means))],
        "upper_95_one_sided": means[int(0.95 * len(means))],
        "slow_down_of_sums": within / without - 1,
        "resting": resting,
        "glancing": glancing,
    }
    out.write_text(json.dumps({**record, "blocks": [(on, round(t * 1e6)) for on, t in blocks], "steps": steps}))
    print(json.dumps(record))


if __name__ == "__main__":
    main()
