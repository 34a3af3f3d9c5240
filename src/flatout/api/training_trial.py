"""A short training on one batch, timed: forward, loss, backward, optimizer; what it took of the device, and how busy that was.

Nothing of the caller's is stepped: the optimizer is a fresh one with a learning rate of 0, which costs the same and learns
nothing. Loading is left out: the batch is on the device.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from flatout.api import refusals, trial_batch
from flatout.api.card_account import CardAccounts, card_of
from flatout.base.records import Missing, Struct
from flatout.launch.watcher import Watcher
from flatout.machine import host
from flatout.machine.machine_facts import Gpu

Loss = Callable[[Any, Any], Any]

WARM_STEPS = 3
WINDOWS = 5  # the middle one counts: a stall in one of them is none of the batch's doing
LOOK_EVERY_S = 0.1

# The driver's percentage is of the time since its last look, up to a second: before that it tells of the warm-up.
SETTLING_S = 1.0


class Timed(Struct, kw_only=True):
    size: int
    ran: bool
    reason: str = ""  # why it did not run
    samples_per_s: float | Missing = Missing("nothing-timed")
    step_s: float | Missing = Missing("nothing-timed")
    peak_bytes: int | Missing = Missing("not-reported")
    retries: int = 0
    utilisation: float | Missing = Missing("no-device")
    power_w: float | Missing = Missing("no-device")


class TrainingTrial:
    def __init__(
        self,
        torch: Any,
        model: Any,
        *,
        loss: Loss | None = None,
        optimizer: Any = None,
        precision: str = "no",
    ) -> None:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not parameters:
            raise refusals.NoParametersError("error.no-parameters", argument="model")
        self._torch = torch
        self._model = model
        self.device = parameters[0].device
        self._on_cuda = self.device.type == "cuda"
        self._loss = loss or self._stand_in
        self._make = partial(_without_learning, torch, optimizer, parameters)
        self._dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
        self._scaler = torch.amp.GradScaler(self.device.type) if precision == "fp16" and self._on_cuda else None

    def _stand_in(self, output: Any, target: Any) -> Any:
        """Where no loss is given: a number that every output has a part in, so that all of the backward pass is done."""
        del target
        floats = [part for part in _tensors(self._torch, output) if part.is_floating_point() and part.requires_grad]
        if not floats:
            raise refusals.ArgumentValueError("error.no-loss", argument="loss")
        return sum(part.float().square().mean() for part in floats)

    def run(self, batch: Any, size: int, seconds: float, *, look: bool = False) -> Timed:
        """Out of memory is an answer; everything else that goes wrong is the caller's to see."""
        try:
            return self._timed(batch, size, seconds, look)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
        # Here the frames that held the tensors are gone.
        self.clean()
        return Timed(size=size, ran=False, reason="out-of-memory", peak_bytes=Missing("out-of-memory"))

    def _timed(self, batch: Any, size: int, seconds: float, look: bool) -> Timed:
        self.clean()
        cuda, accounts = self._torch.cuda, CardAccounts()
        if self._on_cuda:
            cuda.reset_peak_memory_stats(self.device)
        retries = self._retries()
        rows = trial_batch.of_size(self._torch, batch, size, self.device)
        step = self._step_of(rows)
        self._model.train()
        for _ in range(WARM_STEPS):
            loss = step()
        if not math.isfinite(value := float(loss)):
            raise refusals.LossNotFiniteError("error.loss-not-finite", argument="loss", value=value)
        with contextlib.ExitStack() as stack:
            if look and self._on_cuda:
                watcher = stack.enter_context(Watcher(told=accounts.add, every_s=LOOK_EVERY_S))
                self._windows(step, SETTLING_S)
                accounts.forget()
            windows = self._windows(step, seconds)
        card = self._card(watcher.before) if look and self._on_cuda else None
        rates = sorted(size * steps / spent for steps, spent in windows)
        rate = rates[len(rates) // 2]
        return Timed(
            size=size,
            ran=True,
            samples_per_s=rate,
            step_s=size / rate,
            peak_bytes=cuda.max_memory_reserved(self.device) if self._on_cuda else host.own_peak_bytes(),
            retries=self._retries() - retries,
            utilisation=_mean(accounts, card, "utilisation"),
            power_w=_mean(accounts, card, "power_draw_w"),
        )

    def _windows(self, step: Callable[[], Any], seconds: float) -> list[tuple[int, float]]:
        return [self._window(step, seconds / WINDOWS) for _ in range(WINDOWS)]

    def _window(self, step: Callable[[], Any], seconds: float) -> tuple[int, float]:
        """Steps and seconds; the device is waited for at both ends, and nowhere between."""
        self._wait()
        began, steps = time.perf_counter(), 0
        while True:
            step()
            steps += 1
            if time.perf_counter() - began >= seconds:
                self._wait()
                return steps, time.perf_counter() - began

    def _step_of(self, rows: Any) -> Callable[[], Any]:
        torch, model, optimizer, scaler = self._torch, self._model, self._make(), self._scaler
        inputs, target = trial_batch.split(rows)

        def step() -> Any:
            with torch.autocast(self.device.type, self._dtype, enabled=self._dtype is not None):
                output = model(**inputs) if isinstance(inputs, dict) else model(inputs)
                loss = self._loss(output, target)
            if scaler is None:
                loss.backward()
                optimizer.step()
            else:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            optimizer.zero_grad()
            return loss.detach()

        return step

    def _card(self, gpus: list[Gpu]) -> Gpu | None:
        return card_of(gpus, self.device.index or 0, self._torch)

    def _retries(self) -> int:
        return int(self._torch.cuda.memory_stats(self.device).get("num_alloc_retries", 0)) if self._on_cuda else 0

    def _wait(self) -> None:
        if self._on_cuda:
            self._torch.cuda.synchronize(self.device)

    def clean(self) -> None:
        for parameter in self._model.parameters():
            parameter.grad = None  # a step that ended halfway left some
        if self._on_cuda:
            gc.collect()
            self._torch.cuda.empty_cache()


def out_of_memory(error: BaseException) -> bool:
    """CUDA has a type for it; the processor's allocator and cuDNN only say so."""
    text = str(error).lower()
    return type(error).__name__ == "OutOfMemoryError" or "out of memory" in text or "can't allocate memory" in text


def _without_learning(torch: Any, optimizer: Any, parameters: list[Any]) -> Any:
    """A fresh optimizer of the same kind and options: the state that it keeps is part of the memory."""
    kind = torch.optim.Adam if optimizer is None else type(optimizer)
    options = {} if optimizer is None else dict(optimizer.defaults)
    try:
        return kind(parameters, **{**options, "lr": 0.0})
    except (TypeError, ValueError):
        # A kind that takes other arguments, or no rate of 0: Adam keeps as much as most.
        return torch.optim.Adam(parameters, lr=0.0)


def _tensors(torch: Any, output: Any) -> list[Any]:
    if isinstance(output, torch.Tensor):
        return [output]
    parts = list(output.values()) if hasattr(output, "values") else output if isinstance(output, list | tuple) else []
    return [tensor for part in parts for tensor in _tensors(torch, part)]


def _mean(accounts: CardAccounts, card: Gpu | None, name: str) -> float | Missing:
    if card is None:
        return Missing("no-device")
    told = accounts.spread(card.index, name)
    return told if isinstance(told, Missing) else told.mean
