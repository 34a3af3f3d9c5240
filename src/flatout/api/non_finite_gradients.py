"""A step whose gradients are not finite: skipped where that needs no wait, and the way back where it was taken.

A fused optimizer asks a flag on the device whether to step, as it does for a GradScaler: there such a step is left out in every
mixed precision. Other optimizers step before the host can know; there the weights are looked at once the loss tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flatout.api.torch_part import torch


def leaves_steps_out(optimizer: Any) -> bool:
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


def step_if_finite(optimizer: Any, one: Any) -> Any:
    """Steps, unless a gradient is not finite; a tensor that says so (1: left out). `one` is that number, on the device."""
    found = torch.zeros_like(one)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    grads = [grad for parameter in parameters if (grad := parameter.grad) is not None]
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, one)
    # torch's fused SGD would find the buffers of its momentum unwritten after a first step that was left out.
    if not optimizer.state and any(group.get("momentum") for group in optimizer.param_groups):
        if not found.item():
            optimizer.step()
        return found
    optimizer.grad_scale, optimizer.found_inf = None, found
    try:
        optimizer.step()
    finally:
        del optimizer.grad_scale, optimizer.found_inf
    return found


def are_finite(models: Iterable[Any]) -> bool:
    """The parameters of these, or of this rank's part of them. Waits for the device."""
    parts = [getattr(parameter, "_local_tensor", parameter).detach() for model in models for parameter in model.parameters()]
    flags = [torch.isfinite(part).all() for part in parts if part.numel()]
    return bool(torch.stack(flags).all()) if flags else True


def drop_gradients(optimizers: Iterable[Any]) -> None:
    """Of the batch at which a precision was given up: they are scaled, or no numbers. The step that follows does nothing."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None
