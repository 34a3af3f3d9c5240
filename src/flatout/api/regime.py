"""Precision in effect: autocast around the forward pass, float8 inside it, GradScaler for fp16 alone, skipped steps counted."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from flatout.api import non_finite_gradients
from flatout.api.float8 import Float8
from flatout.api.torch_part import torch

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp8": "bfloat16"}  # under fp8 what is no linear layer runs in bf16

FOLD = 256  # steps

PLAIN: AbstractContextManager[None] = nullcontext()


class Regime:
    """`dtype` and `scaler` are None in float32: the hot path asks nothing else."""

    def __init__(self, device: Any, precision: str, is_tried: bool = False) -> None:
        self._device_type = device.type
        self.dtype: Any = None
        self.scaler: Any = None
        self._kept: Any = None  # the scaler survives a switch to float32 and back, with its scale
        self._skipped = torch.zeros((), dtype=torch.float32, device=device)
        self._one = torch.ones((), dtype=torch.float32, device=device)
        self._told: list[Any] = []  # of steps without a scaler, whether they were left out; added up now and then
        self._asked = "tried" if is_tried else precision
        self.float8 = Float8()
        self.switch(precision)

    def switch(self, precision: str) -> None:
        self.precision = precision
        self.float8.is_on = precision == "fp8"
        self.dtype = getattr(torch, DTYPES[precision]) if precision in DTYPES else None
        if precision == "fp16" and self._kept is None:
            self._kept = torch.amp.GradScaler(self._device_type)
        self.scaler = self._kept if precision == "fp16" else None

    def autocast(self) -> AbstractContextManager[Any]:
        if self.dtype is None:
            return PLAIN
        if self.float8.is_on:
            self.float8.stay_on()
        context: AbstractContextManager[Any] = torch.autocast(self._device_type, self.dtype)
        return context

    def unscale(self, optimizer: Any) -> None:
        """Before gradients are looked at; once a step, however often it is asked for."""
        if self.scaler is None:
            return
        try:
            self.scaler.unscale_(optimizer)
        except RuntimeError as error:
            if "already been called" not in str(error):
                raise

    def step(self, optimizer: Any) -> None:
        """With the scaler. What overflowed is counted where it is: on the device, read by nobody before it is asked for."""
        scaler = self.scaler
        scaler.step(optimizer)
        for found in scaler._found_inf_per_device(optimizer).values():
            self._skipped.add_(found.to(self._skipped.device, non_blocking=True))
        scaler.update()

    def step_if_finite(self, optimizer: Any) -> None:
        """Of a fused optimizer, without a scaler."""
        self._told.append(non_finite_gradients.step_if_finite(optimizer, self._one))
        if len(self._told) >= FOLD:
            self._fold()

    def _fold(self) -> None:
        if self._told:
            self._skipped.add_(torch.stack(self._told).sum())
            self._told.clear()

    @property
    def skipped_steps(self) -> int:
        """Waits for the device."""
        self._fold()
        return int(self._skipped.item())

    def state_dict(self) -> dict[str, Any]:
        self._fold()
        scaler = {} if self._kept is None else self._kept.state_dict()
        return {"precision": self.precision, "asked": self._asked, "scaler": scaler, "skipped": self._skipped.cpu()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state.get("asked", self._asked) == self._asked:  # else another one was asked for since: that holds
            saved = str(state["precision"])
            self.switch("bf16" if saved == "fp8" and not self.float8.layers else saved)
        if state["scaler"]:
            if self._kept is None:
                self._kept = torch.amp.GradScaler(self._device_type)
            self._kept.load_state_dict(state["scaler"])
        self._told.clear()
        self._skipped.copy_(state["skipped"])
