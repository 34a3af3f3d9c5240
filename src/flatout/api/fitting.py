"""`fit`: the training loop of the guide as one call."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flatout.api import ranks
from flatout.api.errors import ConfigurationError
from flatout.api.refusals import unknown_name
from flatout.api.torch_part import torch

OPTIONS = ("validation", "scheduler", "checkpoint", "best")


@dataclass
class FitResult:
    """`losses` and `validation_losses`: the mean over each epoch, and over all ranks."""

    model: Any
    losses: list[float] = field(default_factory=list)
    validation_losses: list[float] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0
    skipped_steps: int = 0
    best_epoch: int | None = None
    """The place in `losses`, from 0, where the validation loss (without validation, the loss) was lowest."""
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
    _check(epochs, options)
    compute = loss_of(loss)
    module, optimizer, batches = accelerator.prepare(model, optimizer, loader)
    validation = options.get("validation")
    checks = None if validation is None else accelerator.optimize_data_loading(validation)
    scheduler = options.get("scheduler")
    if scheduler is not None:
        accelerator.register(scheduler=scheduler)
    path, best = (None if options.get(name) is None else Path(options[name]) for name in ("checkpoint", "best"))
    result = FitResult(model=model)
    if path is not None and path.exists():
        kept = accelerator.load(path)
        result.losses, result.validation_losses = (list(kept.get(name, [])) for name in ("losses", "validation_losses"))
        result.best_epoch = _lowest(result)
    began = time.perf_counter()
    module.train()
    while batches.epoch < epochs:
        result.losses.append(_epoch(accelerator, module, optimizer, batches, compute))
        if scheduler is not None:
            scheduler.step()
        if checks is not None:
            result.validation_losses.append(_validated(accelerator, module, checks, compute))
        result.best_epoch = _lowest(result)
        _keep(accelerator, result, path, best)
    result.steps, result.seconds = accelerator.steps, time.perf_counter() - began
    result.skipped_steps, result.notes = accelerator.skipped_steps, accelerator.notes
    return result


def _check(epochs: Any, options: dict[str, Any]) -> None:
    for name in options:
        if name not in OPTIONS:
            raise unknown_name("fit", name, OPTIONS)
    if type(epochs) is not int or epochs < 1:
        raise ConfigurationError("library.config-value", name="epochs", value=repr(epochs), wanted="1 …")


def _keep(accelerator: Any, result: FitResult, path: Path | None, best: Path | None) -> None:
    is_best = result.best_epoch == len(result.losses) - 1
    for place in (path, best if is_best else None):
        if place is not None and not accelerator.is_accumulating:
            accelerator.save(place, losses=result.losses, validation_losses=result.validation_losses)


def loss_of(loss: Any) -> Callable[[Any, Any], Any]:
    if isinstance(loss, torch.nn.Module):
        return lambda model, batch: loss(model(batch[0]), batch[1])
    if callable(loss):
        return loss  # type: ignore[no-any-return]
    raise ConfigurationError("library.config-value", name="loss", value=type(loss).__name__, wanted="(model, batch) -> loss")


def _epoch(accelerator: Any, module: Any, optimizer: Any, batches: Any, compute: Any) -> float:
    total: Any = None
    count, stepped = 0, True
    counted: Any = None  # in mixed precision a step may be left out: what it gave does not count
    if accelerator.precision != "no":
        counted = torch.zeros((), device=accelerator.device)
    for batch in batches:
        loss = accelerator.train_on(batch, lambda part: compute(module, part))
        stepped = accelerator.step(optimizer)
        if counted is not None:
            counted += torch.isfinite(loss)
            loss = torch.nan_to_num(loss, nan=0.0, posinf=0.0, neginf=0.0)
        total = loss if total is None else total + loss
        count += 1
    if not stepped and accelerator.config.distributed != "fsdp":  # there the group goes on into the next epoch
        accelerator.flush(optimizer)
    accelerator._be_finite()
    mean = _mean(accelerator, total, count if counted is None else int(counted.item()))
    if count and not math.isfinite(mean):
        raise accelerator._not_finite("library.loss-not-finite")  # before anything is saved
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
    return _mean(accelerator, total, count)


def _mean(accelerator: Any, total: Any, count: int) -> float:
    """Over the batches of all ranks, so that all of them come to the same decision. The one wait of an epoch."""
    if accelerator.config.distributed != "no":
        return ranks.mean_over_all(total, count, accelerator.device)
    return float(total) / count if count else math.nan


def _lowest(result: FitResult) -> int | None:
    course = result.validation_losses or result.losses
    return min(range(len(course)), key=course.__getitem__) if course else None
