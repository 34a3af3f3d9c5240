"""The optimised loader beside the best loop by hand: pinned, workers, `.to(device, non_blocking=True)`.

    loader_cost.py SECONDS OUT.json [WORKERS]

Both read the same dataset with the same workers, pinning and prefetching and train the same small model. Epochs are interleaved
in one process, in a new order each round; a round gives one ratio of throughputs. The order of the samples is compared as well.
"""

from __future__ import annotations

import json
import random
import sys
import time
from math import exp, log
from pathlib import Path
from statistics import mean

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from flatout import TrainingAccelerator

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
SIZE = 128 if CUDA else 32
BATCH = 64


class Pictures(Dataset):
    """Decoding and cutting stand-in: a view into kept pictures, copied, and its number."""

    def __init__(self, length):
        self.pool = torch.rand(64, 3, SIZE + 16, SIZE + 16)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        top, left = index % 16, index % 13
        return self.pool[index % 64, :, top : top + SIZE, left : left + SIZE].clone(), index


def network():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    )
    net.to(DEVICE)
    return net, torch.optim.SGD(net.parameters(), lr=1e-4)


def epoch(model, optimizer, batches):
    """Seconds, and the order in which the samples came."""
    order = []
    if CUDA:
        torch.cuda.synchronize()
    began = time.perf_counter()
    for x, index in batches:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        order.append(index)
    if CUDA:
        torch.cuda.synchronize()
    return time.perf_counter() - began, torch.cat(order).cpu()


def moved(loader):
    for x, index in loader:
        yield x.to(DEVICE, non_blocking=True), index.to(DEVICE, non_blocking=True)


def main():
    seconds, out, *rest = sys.argv[1:]
    workers = int(rest[0]) if rest else 8
    data = Pictures(BATCH * (200 if CUDA else 10))
    kept = {"persistent_workers": True, "prefetch_factor": 4} if workers else {}
    plain = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=workers, pin_memory=CUDA, **kept)
    ours = TrainingAccelerator({"num_workers": workers, **kept}).optimize_data_loading(
        DataLoader(data, batch_size=BATCH, shuffle=True)
    )
    variants = {"by hand": (*network(), lambda: moved(plain)), "flatout": (*network(), lambda: ours)}
    ratios, dice = [], random.Random(0)
    end = time.perf_counter() + float(seconds)
    number = 0
    while time.perf_counter() < end or len(ratios) < 4:
        times, orders = {}, []
        for name in dice.sample(list(variants), 2):
            torch.manual_seed(number)
            model, optimizer, batches = variants[name]
            times[name], order = epoch(model, optimizer, batches())
            orders.append(order)
        assert torch.equal(*orders), "another order"
        number += 1
        if number > 1:  # the first starts the workers
            ratios.append(log(times["by hand"] / times["flatout"]))
    means = sorted(exp(mean(dice.choices(ratios, k=len(ratios)))) for _ in range(2000))
    record = {
        "device": torch.cuda.get_device_name() if CUDA else "cpu",
        "torch": torch.__version__,
        "workers": workers,
        "rounds": len(ratios),
        "throughput_ratio": exp(mean(ratios)),
        "low_95": means[50],
        "high_95": means[1949],
        "same_order": True,
    }
    Path(out).write_text(json.dumps(record, indent=2))
    print(json.dumps(record))


if __name__ == "__main__":
    main()
