"""What a step through the library costs beside the loop by hand, Accelerate, Fabric and Lightning.

    library_cost.py SECONDS OUT.json [behavior|restoration|tiny] [no|bf16] [fused]

Every variant trains a model of its own, from the same seed, on the same batches, which lie on the device already: only the loop
differs. Blocks of a few steps are interleaved in one process, in a new order each round; a round gives one ratio to the loop by
hand for each variant. The estimate is the mean of their logarithms without the most extreme twentieth at either end, the bounds
a bootstrap of it. On a GPU wall time counts; on the processor, which others share, the processor time of this process.
Lightning owns its loop: it runs in a thread that goes on for one block at a time. What is not installed is left out.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import random
import sys
import threading
import time
import warnings
from math import exp, log
from pathlib import Path
from statistics import mean, median

import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from flatout import TrainingAccelerator

FUSED = sys.argv[-1] == "fused"  # in bf16 the library then leaves out steps that are not finite
BLOCK = 10
WARM_ROUNDS = 5
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
clock = time.perf_counter if CUDA else time.process_time


def specimen(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def behavior():
    net = specimen("behavior").BehaviorNet(hidden=128 if CUDA else 16)
    return net, nn.CrossEntropyLoss(), lambda: (torch.randn(32, 32, 128), torch.randint(0, 12, (32,)))


def restoration():
    net = specimen("restoration").Restorer(32 if CUDA else 8, 4)
    size = 128 if CUDA else 32
    return net, nn.L1Loss(), lambda: (torch.rand(16, 3, size, size), torch.rand(16, 3, size, size))


def tiny():
    net = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))
    return net, nn.CrossEntropyLoss(), lambda: (torch.randn(16, 32), torch.randint(0, 8, (16,)))


class Variant:
    """One loop. `block` takes BLOCK steps."""

    def __init__(self, make, precision):
        torch.manual_seed(0)
        self.model, self.loss, batch = make()
        self.model.to(DEVICE)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=FUSED or None)
        self.batches = [tuple(part.to(DEVICE) for part in batch()) for _ in range(BLOCK)]
        self.precision = precision
        self.begin()

    def begin(self):
        pass

    def block(self):
        raise NotImplementedError


class ByHand(Variant):
    def block(self):
        model, optimizer, loss_of = self.model, self.optimizer, self.loss
        if self.precision == "no":
            for x, y in self.batches:
                loss = loss_of(model(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            return
        for x, y in self.batches:
            with torch.autocast(DEVICE.type, torch.bfloat16):
                loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


class Flatout(Variant):
    def begin(self):
        self.accelerator = TrainingAccelerator({"precision": self.precision})
        self.model, self.optimizer = self.accelerator.prepare(self.model, self.optimizer)

    def block(self):
        accelerator, model, optimizer, loss_of = self.accelerator, self.model, self.optimizer, self.loss
        for x, y in self.batches:
            with accelerator.autocast():
                loss = loss_of(model(x), y)
            accelerator.backward(loss)
            accelerator.step(optimizer)


class FlatoutTrainOn(Flatout):
    """The road of `fit`, which can split a batch."""

    def block(self):
        for batch in self.batches:
            self.accelerator.train_on(batch, lambda part: self.loss(self.model(part[0]), part[1]))
            self.accelerator.step(self.optimizer)


class OfAccelerate(Variant):
    def begin(self):
        from accelerate import Accelerator

        self.accelerator = Accelerator(mixed_precision=self.precision, cpu=not CUDA)
        self.model, self.optimizer = self.accelerator.prepare(self.model, self.optimizer)

    def block(self):
        for x, y in self.batches:
            with self.accelerator.autocast():
                loss = self.loss(self.model(x), y)
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()


class OfFabric(Variant):
    def begin(self):
        from lightning.fabric import Fabric

        precision = {"no": "32-true", "bf16": "bf16-mixed"}[self.precision]
        self.fabric = Fabric(accelerator=DEVICE.type, devices=1, precision=precision)
        self.model, self.optimizer = self.fabric.setup(self.model, self.optimizer)

    def block(self):
        for x, y in self.batches:
            loss = self.loss(self.model(x), y)
            self.fabric.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()


class OfLightning(Variant):
    def begin(self):
        import lightning

        variant = self

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = variant.model

            def training_step(self, batch, _):
                return variant.loss(self.net(batch[0]), batch[1])

            def configure_optimizers(self):
                return variant.optimizer

        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        precision = {"no": "32-true", "bf16": "bf16-mixed"}[self.precision]
        trainer = lightning.Trainer(
            max_epochs=-1,
            accelerator=DEVICE.type,
            devices=1,
            precision=precision,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        self.go, self.done, self.is_over = threading.Semaphore(0), threading.Semaphore(0), False
        loader = _Blocks(self)
        threading.Thread(target=lambda: trainer.fit(Module(), loader), daemon=True).start()

    def block(self):
        self.go.release()
        self.done.acquire()


class _Blocks:
    """Stands for a loader that waits between blocks. Lightning fetches one batch ahead: its blocks are shifted by one step."""

    def __init__(self, variant):
        self.variant = variant

    def __iter__(self):
        self.variant.go.acquire()
        while True:
            yield from self.variant.batches
            self.variant.done.release()
            self.variant.go.acquire()


VARIANTS = {
    "by hand": ByHand,
    "flatout": Flatout,
    "flatout train_on": FlatoutTrainOn,
    "accelerate": OfAccelerate,
    "fabric": OfFabric,
    "lightning": OfLightning,
}


def synchronize():
    if CUDA:
        torch.cuda.synchronize()


def measure(variants, seconds):
    """Seconds of each variant's block, a round at a time."""
    rounds, order = [], list(variants)
    dice = random.Random(0)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(rounds) < WARM_ROUNDS + 8:
        dice.shuffle(order)
        times = {}
        for name in order:
            synchronize()
            began = clock()
            variants[name].block()
            synchronize()
            times[name] = clock() - began
        rounds.append(times)
    return rounds[WARM_ROUNDS:]


def trimmed(values):
    cut = len(values) // 20
    return exp(mean(sorted(values)[cut : len(values) - cut])) - 1


def told(rounds, name):
    logs = [log(times[name] / times["by hand"]) for times in rounds]
    dice = random.Random(1)
    means = sorted(trimmed(dice.choices(logs, k=len(logs))) for _ in range(2000))
    return {
        "step_us": median(times[name] for times in rounds) / BLOCK * 1e6,
        "extra": trimmed(logs),
        "low_95": means[int(0.025 * len(means))],
        "high_95": means[int(0.975 * len(means))],
        "upper_95_one_sided": means[int(0.95 * len(means))],
    }


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    seconds, out, *rest = [word for word in sys.argv[1:] if word != "fused"]
    model, precision = (*rest, *("tiny", "no")[len(rest) :])
    make = {"behavior": behavior, "restoration": restoration, "tiny": tiny}[model]
    variants = {}
    for name, kind in VARIANTS.items():
        with contextlib.suppress(ImportError):
            variants[name] = kind(make, precision)
    rounds = measure(variants, float(seconds))
    record = {
        "device": torch.cuda.get_device_name() if CUDA else "cpu",
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "model": model,
        "precision": precision,
        "fused": FUSED,
        "rounds": len(rounds),
        "steps_a_round": BLOCK,
        "variants": {name: told(rounds, name) for name in variants},
    }
    Path(out).write_text(json.dumps(record, indent=2))
    for name, line in record["variants"].items():
        bounds = f"{100 * line['low_95']:+.2f} to {100 * line['high_95']:+.2f}"
        print(f"{name:18} {line['step_us']:9.1f} us  {100 * line['extra']:+6.2f} %  ({bounds})")


if __name__ == "__main__":
    main()
