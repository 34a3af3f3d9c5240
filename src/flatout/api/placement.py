"""Checks that all tensors are on one device (properties 2 and 3), and names those that are not."""

from __future__ import annotations

from typing import Any

from flatout.api.errors import ModelError
from flatout.api.refusals import NoParametersError
from flatout.api.torch_part import torch


def check_model(model: Any, optimizer: Any) -> None:
    if not isinstance(model, torch.nn.Module):
        raise ModelError("library.model-type", found=type(model).__name__)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ModelError("library.optimizer-type", found=type(optimizer).__name__)
    own = {id(parameter) for parameter in model.parameters()}
    if not own:
        raise NoParametersError("library.model-empty", name=type(model).__name__)
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    strangers = sum(id(parameter) not in own for parameter in held)
    if strangers:
        raise ModelError("library.optimizer-strangers", count=strangers, name=type(model).__name__)


def misplaced(model: Any, device: Any, batch: Any = None) -> list[str]:
    """Names of the tensors that are elsewhere: parameters, buffers, tensors kept as plain attributes, parts of the batch."""
    found = [f"{name} ({part.device})" for name, part in model.named_parameters() if not _is_on(part, device)]
    found += [f"{name} ({part.device})" for name, part in model.named_buffers() if not _is_on(part, device)]
    for path, module in model.named_modules():
        for name, part in vars(module).items():
            if isinstance(part, torch.Tensor) and not _is_on(part, device):
                found.append(f"{path + '.' if path else ''}{name} ({part.device})")
    found += [f"{path} ({part.device})" for path, part in _tensors(batch, "batch", 4) if not _is_on(part, device)]
    return found


def check_placement(model: Any, device: Any, batch: Any = None) -> None:
    elsewhere = misplaced(model, device, batch)
    if elsewhere:
        raise ModelError("library.misplaced", device=str(device), names=", ".join(elsewhere[:5]), count=len(elsewhere))


def _is_on(tensor: Any, device: Any) -> bool:
    same_kind = tensor.device.type == device.type
    return bool(same_kind and (device.index is None or tensor.device.index in (None, device.index)))


def _tensors(thing: Any, path: str, depth: int) -> list[tuple[str, Any]]:
    if isinstance(thing, torch.Tensor):
        return [(path, thing)]
    if depth == 0:
        return []
    if isinstance(thing, dict):
        return [found for key, part in thing.items() for found in _tensors(part, f"{path}[{key!r}]", depth - 1)]
    if isinstance(thing, list | tuple):
        return [found for number, part in enumerate(thing) for found in _tensors(part, f"{path}[{number}]", depth - 1)]
    return []
