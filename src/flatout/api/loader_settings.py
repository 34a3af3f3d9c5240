"""Number of workers and other settings for a DataLoader: the user's own, else only those that change no number."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass, field
from typing import Any

from _flatout_agent.knobs.loader.fetch_randomness import Fetching
from _flatout_agent.knobs.loader.worker_limits import most_workers, obstacle, processors, worker_obstacle
from flatout.api import random_state, sampling
from flatout.api.notes import sentence
from flatout.api.torch_part import torch
from flatout.api.training_config import TrainingConfig
from flatout.machine import worker_estimate

CHEAP_FETCH_S = 0.002  # below, handing a batch between processes costs as much as making it
PREFETCH = 2


@dataclass
class Settings:
    workers: int
    pin: bool
    persistent: bool
    prefetch: int | None
    ahead: bool  # copied to the device on a stream of its own
    reasons: dict[str, str] = field(default_factory=dict)


def settle(loader: Any, wanted: TrainingConfig, device: Any) -> Settings:
    on_cuda = device.type == "cuda"
    reasons: dict[str, str] = {}
    workers = _workers(loader, wanted, on_cuda, reasons)
    pin = on_cuda if wanted.pin_memory == "auto" else bool(wanted.pin_memory and torch.cuda.is_available())
    persistent = bool(workers) and (
        loader.persistent_workers or _is_multiplied(loader, workers)
        if wanted.persistent_workers == "auto"
        else bool(wanted.persistent_workers)
    )
    prefetch = (wanted.prefetch_factor or loader.prefetch_factor or PREFETCH) if workers else None
    ahead = on_cuda and wanted.device_prefetch is not False
    return Settings(workers, pin or (loader.pin_memory and on_cuda), persistent, prefetch, ahead, reasons)


def _is_multiplied(loader: Any, workers: int) -> bool:
    """Workers that we added, to a dataset that draws nothing: they may live on from epoch to epoch."""
    return bool(loader.num_workers == 0 and workers)


def _workers(loader: Any, wanted: TrainingConfig, on_cuda: bool, reasons: dict[str, str]) -> int:
    if wanted.num_workers != "auto":
        return int(wanted.num_workers)
    own = int(loader.num_workers)
    if own or not on_cuda:
        reasons["num_workers"] = sentence("library.workers-kept" if own else "library.workers-cpu", count=own)
        return own
    why = obstacle(torch, loader) or worker_obstacle(torch, loader)
    if why is not None:
        reasons["num_workers"] = sentence("library.workers-refused", why=sentence(f"outcome.{why[0]}", **why[1]))
        return 0
    fetching, seconds = _looked_at(loader)
    if not fetching.is_pure():
        reasons["num_workers"] = sentence("library.workers-random", touched=", ".join(sorted(fetching.touched)))
        return 0
    if seconds < CHEAP_FETCH_S:
        reasons["num_workers"] = sentence("library.workers-cheap", ms=round(1000 * seconds, 2))
        return 0
    room, limit = most_workers(loader, PREFETCH, fetching.batch_bytes, fetching.batch_tensors)
    usual = worker_estimate.estimate(processors(), platform.system())
    count, limit = (room, limit) if room < usual else (usual, "processors")
    reasons["num_workers"] = sentence("library.workers-added", count=count, ms=round(1000 * seconds, 1), limit=limit)
    return count


def _looked_at(loader: Any) -> tuple[Fetching, float]:
    """Two batches fetched here, timed and looked at; every generator is put back."""
    fetching = Fetching()
    before = random_state.captured()
    generators = [(each, each.get_state()) for each in sampling.own_generators(loader)]
    seconds = []
    try:
        for _, indices in zip(range(2), loader._index_sampler, strict=False):
            state = fetching.before(torch, loader.dataset)
            began = time.perf_counter()
            samples = [loader.dataset[index] for index in indices] if isinstance(indices, list) else loader.dataset[indices]
            fetching.after(torch, loader.dataset, state)
            batch = loader.collate_fn(samples)
            seconds.append(time.perf_counter() - began)
            fetching.weigh(torch, batch)
    finally:
        random_state.restore(before)
        for generator, state in generators:
            generator.set_state(state)
    return fetching, min(seconds, default=0.0)
