"""Several ranks under torchrun, with PyTorch's own means: rank and world size, and the model wrapped as configured."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

from flatout.api.errors import ConfigurationError
from flatout.api.torch_part import torch


@dataclass(frozen=True)
class Ranks:
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0


def here() -> Ranks:
    """From torchrun's variables; alone where there are none."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    try:
        rank, local, world = (int(os.environ.get(name, default)) for name, default in zip(names, ("0", "0", "1"), strict=True))
    except ValueError:
        shown = ", ".join(f"{name}={os.environ.get(name)}" for name in names)
        raise ConfigurationError("library.ranks-unclear", found=shown) from None
    return Ranks(rank, local, world)


def mode_of(wanted: str, ranks: Ranks) -> str:
    if ranks.world_size == 1:
        return "no"
    return "ddp" if wanted == "auto" else wanted


def start(device: Any) -> None:
    """The process group, unless the script has started it."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")


def wrapped(model: Any, mode: str, device: Any) -> Any:
    if mode == "ddp":
        places = [device.index] if device.type == "cuda" else None
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=places)
    if mode == "fsdp":
        _shard(model, device)
    return model


def _shard(model: Any, device: Any) -> None:
    """FSDP2: the repeated blocks one by one, so that only one is whole at a time, then what is left."""
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:  # before torch 2.6
        from torch.distributed._composable.fsdp import fully_shard
    mesh = torch.distributed.init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    for module in list(model.modules()):
        if isinstance(module, torch.nn.ModuleList):
            for block in module:
                fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def follow(optimizer: Any, before: dict[str, Any], model: Any) -> None:
    """Sharding gave the model new parameters: an optimizer made before takes those in place of its own."""
    after = dict(model.named_parameters())
    new = {id(parameter): after[name] for name, parameter in before.items()}
    for group in optimizer.param_groups:
        group["params"] = [new.get(id(parameter), parameter) for parameter in group["params"]]


def set_sync(model: Any, mode: str, is_on: bool) -> None:
    """Whether the next backward pass sums the gradients of all ranks: in an accumulation only the last does."""
    if mode == "ddp":
        model.require_backward_grad_sync = is_on
    elif mode == "fsdp":
        model.set_requires_gradient_sync(is_on)


def multiply_gradients(optimizer: Any, factor: float, mode: str) -> None:
    """Of an accumulation that ends early; under DDP its backward passes have not summed the ranks' gradients yet."""
    for parameter in (parameter for group in optimizer.param_groups for parameter in group["params"]):
        if parameter.grad is None and mode == "ddp":
            parameter.grad = torch.zeros_like(parameter)
        if parameter.grad is not None:
            parameter.grad.mul_(factor)
            if mode == "ddp":
                torch.distributed.all_reduce(parameter.grad)
                parameter.grad.div_(torch.distributed.get_world_size())


def gathered(part: Any) -> list[Any]:
    """One byte tensor of equal size from every rank, in their order."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [part]
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    mine = part.to(device)
    parts = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(parts, mine)
    return [each.cpu() for each in parts]


def mean_of(loss: Any) -> Any:
    """Of all ranks; every rank calls it. On a GPU it is queued behind the rest, and the host does not wait."""
    mine = loss.detach().float().clone()
    torch.distributed.all_reduce(mine)
    return mine / torch.distributed.get_world_size()


def mean_over_all(total: Any, count: int, device: Any) -> float:
    """Of the sums and counts of every rank; every rank calls it and gets the same."""
    sums = torch.zeros(2, dtype=torch.float64, device=device)
    if count:
        sums[0], sums[1] = total.detach().to(sums), count
    torch.distributed.all_reduce(sums)
    whole, number = sums.tolist()
    return whole / number if number else math.nan


def all_say(flag: bool, mode: str, device: Any) -> bool:
    """Whether every rank says so; every rank calls it."""
    if mode == "no":
        return flag
    found = torch.tensor(float(flag), device=device)
    torch.distributed.all_reduce(found, op=torch.distributed.ReduceOp.MIN)
    return bool(found.item())


def barrier() -> None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
