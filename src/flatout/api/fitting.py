"""`fit`: the loop that the guide shows, as one call."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flatout.api.errors import ConfigurationError
from flatout.api.refusals import LossNotFiniteError, unknown_name
from flatout.api.torch_part import torch

OPTIONS = ("validation", "scheduler", "checkpoint")


@dataclass
class FitResult:
    """`losses` and `validation_losses`: the mean over each epoch."""

    model: Any
    losses: list[float] = field(default_factory=list)
    validation_losses: list[float] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0
    skipped_steps: int = 0
    notes: list[str] = field(default_factory=list)


def fit(  # noqa: PLR0913 - what a training is made of
    accelerator: Any,  # the TrainingAccelerator, whose module imports this one
    model: Any,
    optimizer: Any,
    loader: Any,
    loss: Any,
    epochs: int,
    options: dict[str, Any],
) -> FitResult:
    """One epoch after the other, from where the checkpoint stands."""
    for name in options:
        if name not in OPTIONS:
            raise unknown_name("fit", name, OPTIONS)
    if type(epochs) is not int or epochs < 1:
        raise ConfigurationError("library.config-value", name="epochs", value=repr(epochs), wanted="1 …")
    compute = loss_of(loss)
    module, optimizer, batches = accelerator.prepare(model, optimizer, loader)
    validation = options.get("validation")
    checks = None if validation is None else accelerator.optimize_data_loading(validation)
    scheduler = options.get("scheduler")
    if scheduler is not None:
        accelerator.register(scheduler=scheduler)
    path = None if options.get("checkpoint") is None else Path(options["checkpoint"])
    result = FitResult(model=model)
    if path is not None and path.exists():
        kept = accelerator.load(path)
        result.losses, result.validation_losses = (list(kept.get(name, [])) for name in ("losses", "validation_losses"))
    began = time.perf_counter()
    module.train()
    while batches.epoch < epochs:
        result.losses.append(_epoch(accelerator, module, optimizer, batches, compute))
        if scheduler is not None:
            scheduler.step()
        if checks is not None:
            result.validation_losses.append(_validated(accelerator, module, checks, compute))
        if path is not None and not accelerator.is_accumulating:
            accelerator.save(path, losses=result.losses, validation_losses=result.validation_losses)
    result.steps, result.seconds = accelerator.steps, time.perf_counter() - began
    result.skipped_steps, result.notes = accelerator.skipped_steps, accelerator.notes
    return result


def loss_of(loss: Any) -> Callable[[Any, Any], Any]:
    if isinstance(loss, torch.nn.Module):
        return lambda model, batch: loss(model(batch[0]), batch[1])
    if callable(loss):
        return loss  # type: ignore[no-any-return]
    raise ConfigurationError("library.config-value", name="loss", value=type(loss).__name__, wanted="(model, batch) -> loss")


def _epoch(accelerator: Any, module: Any, optimizer: Any, batches: Any, compute: Any) -> float:
    total: Any = None
    count, stepped = 0, True
    for batch in batches:
        loss = accelerator.train_on(batch, lambda part: compute(module, part))
        stepped = accelerator.step(optimizer)
        total = loss if total is None else total + loss
        count += 1
    if not stepped and accelerator.config.distributed != "fsdp":  # there the group goes on into the next epoch
        accelerator.flush(optimizer)
    mean = float(total) / count if count else math.nan  # the one wait of an epoch
    if count and not math.isfinite(mean):
        raise LossNotFiniteError("library.loss-not-finite", step=accelerator.steps)  # before anything is saved
    return mean


def _validated(accelerator: Any, module: Any, checks: Any, compute: Any) -> float:
    total: Any = None
    count = 0
    with accelerator.evaluate(module):
        for batch in checks:
            answer = compute(module, batch)
            loss = answer[0] if isinstance(answer, tuple) else answer
            total = loss if total is None else total + loss
            count += 1
    return float(total) / count if count else float("nan")
