"""`BatchSizeOptimizer`: the batch size by measurement. Short trainings at growing sizes on the model's own device; the model
comes back as it was, bit for bit.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flatout.api import refusals, trial_batch
from flatout.api.kept_state import kept
from flatout.api.training_trial import Loss, Timed, TrainingTrial
from flatout.base.records import Missing
from flatout.base.words import Words, choose_language
from flatout.knobs import catalogue, values
from flatout.machine import host
from flatout.tune.batch import estimate
from flatout.tune.batch.size_policy import BatchPolicy
from flatout.tune.batch.utilisation_target import Target, next_target_size, take
from flatout.tune.search.questions_and_answers import BatchGoal, BatchProbe

LOG = logging.getLogger("flatout")

START = 8  # smaller batches are tried only where this one does not fit
LARGEST = 4096
MOST_PROBES = 20
SECONDS = 1.0  # timed at each size on a GPU; utilisation wants a second before it

# What is read of a configuration; the rest of it is the training's own business.
KEYS = ("batch_size", "precision", "use_amp", "use_mixed_precision", "mixed_precision", "gpu_memory_fraction")
PRECISIONS = KEYS[1:5]


@dataclass
class BatchSizeStatistics:
    """How the size was found. Bytes, seconds, percent; `trials` holds every size that was tried, those that did not fit too."""

    batch_size: int  # 0 where none fits
    target_gpu_util: float
    target_reached: bool | Missing
    reason: str
    samples_per_s: float | Missing
    best_samples_per_s: float | Missing
    gpu_utilization: float | Missing
    peak_bytes: int | Missing
    memory_limit_bytes: int | Missing
    headroom: float
    device: str
    trials: list[Timed] = field(default_factory=list)


class BatchSizeOptimizer:
    """`model` on the device on which it trains. Of `config` (a dict, or an object with such attributes) the precision and
    `gpu_memory_fraction` are read. `loss(output, target)` and `optimizer` make the trials more like the real training:
    neither is changed. Without a loss the mean square of the outputs stands in for it.
    """

    def __init__(
        self,
        model: Any,
        config: Any = None,
        *,
        loss: Loss | None = None,
        optimizer: Any = None,
        largest: int = LARGEST,
        language: str | None = None,
    ) -> None:
        from flatout.api.torch_part import torch

        self._torch = torch
        if not isinstance(model, torch.nn.Module):
            raise refusals.ArgumentTypeError(
                "error.argument-type", argument="model", wanted="torch.nn.Module", found=type(model).__name__
            )
        self._model = model
        self._config = _read(config)
        self._trial = TrainingTrial(torch, model, loss=loss, optimizer=optimizer, precision=self._precision())
        self._largest = refusals.whole_number("largest", largest, least=1)
        self._words = Words(choose_language(language))

    def find_optimal_batch_size(
        self, sample_data: Any, target_gpu_util: float = 85.0, *, seconds: float | None = None
    ) -> tuple[int, BatchSizeStatistics]:
        """The smallest of the tried sizes (doublings, and where the memory ends) that reaches the utilisation and is within 2 %
        of the best throughput. `sample_data` is a batch as a loop gets it: a tensor, (inputs, target), a dict, or a loader.

        Loading is not part of it: whether the loader keeps up is what `PerformanceMonitor` and `flatout run` tell.
        """
        percent = refusals.share("target_gpu_util", target_gpu_util, most=100.0)
        length = seconds or (SECONDS if self._trial.device.type == "cuda" else SECONDS / 2)
        with kept(self._torch, self._model):
            batch = trial_batch.first_batch(self._torch, sample_data)
            policy = self._policy()
            trials = self._try_sizes(batch, Target(percent=percent, policy=policy), length)
            self._trial.clean()
        statistics = self._statistics(trials, Target(percent=percent, policy=policy))
        LOG.info(statistics.reason)
        return statistics.batch_size, statistics

    def _precision(self) -> str:
        knob = catalogue.find("precision")
        name = next((name for name in PRECISIONS if name in self._config), None)
        if knob is None or name is None:
            return "no"
        if self._config[name] == "fp8":
            return "bf16"  # what is no linear layer runs in it, and no product needs more memory
        meant = values.meant(knob, self._config[name], f"config[{name!r}]")
        if meant != "auto":
            return meant
        first = next(iter(self._model.parameters()), None)
        if first is None or first.device.type != "cuda":
            return "no"
        return "bf16" if self._torch.cuda.get_device_capability()[0] >= 8 else "fp16"

    def _try_sizes(self, batch: Any, target: Target, seconds: float) -> list[Timed]:
        trials: list[Timed] = []
        while len(trials) < MOST_PROBES:
            size = next_target_size([_probe(one) for one in trials], _busy(trials), target)
            if size is None:
                break
            trials.append(self._trial.run(batch, size, seconds, look=True))
        return trials

    def _policy(self) -> BatchPolicy:
        limit = self._memory_limit()
        return BatchPolicy(
            goal=BatchGoal.GROW,
            start=min(START, self._largest),
            largest=self._largest,
            memory_limit=limit,
            headroom=estimate.headroom(host.system().name),
        )

    def _memory_limit(self) -> int | None:
        """What torch may hold at most: what is free, and what it holds already; of the host's memory likewise."""
        if self._trial.device.type != "cuda":
            memory, own = host.memory(), host.own_bytes()
            room = [own + memory.available_bytes] if isinstance(memory.available_bytes, int) else []
            return min([*room, *([memory.limit_bytes] if isinstance(memory.limit_bytes, int) else [])], default=None)
        cuda, device = self._torch.cuda, self._trial.device
        self._trial.clean()
        free, total = cuda.mem_get_info(device)
        limit = int(free + cuda.memory_reserved(device))
        fraction = self._config.get("gpu_memory_fraction")
        return limit if fraction is None else min(limit, int(refusals.share("gpu_memory_fraction", fraction) * total))

    def _statistics(self, trials: list[Timed], target: Target) -> BatchSizeStatistics:
        taken = take([_probe(one) for one in trials], _busy(trials), target)
        chosen = next((one for one in trials if one.size == taken.size), None)
        busy: float | Missing = chosen.utilisation if chosen else Missing("no-looks")
        highest = max((one.utilisation for one in trials if isinstance(one.utilisation, float)), default=0.0)
        reason = self._words(
            f"batch-size.{taken.reason}",
            size=taken.size,
            target=f"{target.percent:g}",
            busy=f"{busy:.0f}" if isinstance(busy, float) else "?",
            highest=f"{highest:.0f}",
            why=self._words(f"missing.{busy.reason}") if isinstance(busy, Missing) else "",
        )
        return BatchSizeStatistics(
            batch_size=taken.size,
            target_gpu_util=target.percent,
            target_reached=busy if isinstance(busy, Missing) else taken.reason == "reached",
            reason=reason,
            samples_per_s=chosen.samples_per_s if chosen else Missing("nothing-timed"),
            best_samples_per_s=taken.best_rate,
            gpu_utilization=busy,
            peak_bytes=chosen.peak_bytes if chosen else Missing("not-reported"),
            memory_limit_bytes=Missing("not-reported") if target.policy.memory_limit is None else target.policy.memory_limit,
            headroom=target.policy.headroom,
            device=str(self._trial.device),
            trials=trials,
        )


def _probe(timed: Timed) -> BatchProbe:
    return BatchProbe(size=timed.size, ran=timed.ran, peak=timed.peak_bytes, retries=timed.retries, rate=timed.samples_per_s)


def _busy(trials: list[Timed]) -> dict[int, float | Missing]:
    return {one.size: one.utilisation for one in trials}


def _read(config: Any) -> dict[str, Any]:
    """The keys that matter here. One that is nearly one of them is a slip; others are the training's own."""
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        if isinstance(config, str | bytes | int | float | list | tuple):
            raise refusals.ArgumentTypeError(
                "error.argument-type", argument="config", wanted="dict | TrainingConfig", found=type(config).__name__
            )
        return {name: getattr(config, name) for name in KEYS if getattr(config, name, None) is not None}
    refusals.no_near_misses("config", config, KEYS)
    return {name: config[name] for name in KEYS if config.get(name) is not None}
