"""From the wanted configuration to the one in effect on this machine, with the reason of each choice."""

from __future__ import annotations

import os
from typing import Any

from _flatout_agent.knobs.precision import best_precision
from flatout.api import float8, ranks
from flatout.api.errors import ConfigurationError
from flatout.api.notes import sentence
from flatout.api.ranks import Ranks
from flatout.api.torch_part import torch, torch_is_at_least
from flatout.api.training_config import AcceleratedConfig, TrainingConfig
from flatout.base.records import Missing
from flatout.machine import nvml
from flatout.machine.choose import choose
from flatout.machine.machine_facts import Gpu

FIRST_WITH_TF32 = 8  # compute capability of Ampere


def resolve(wanted: TrainingConfig) -> AcceleratedConfig:
    reasons: dict[str, str] = {}
    place = ranks.here()
    device = _device(wanted, place, reasons)
    precision, is_tried = _precision(wanted, device, place, reasons)
    on_cuda = device.type == "cuda"
    modern = on_cuda and torch.cuda.get_device_capability(device)[0] >= FIRST_WITH_TF32
    return AcceleratedConfig(
        device=str(device),
        precision=precision,
        precision_is_tried=is_tried,
        tf32=_switch("tf32", wanted.tf32, modern, on_cuda, reasons),
        cudnn_benchmark=_switch("cudnn_benchmark", wanted.cudnn_benchmark, on_cuda, on_cuda, reasons),
        channels_last=wanted.channels_last,
        fused_optimizer=_switch("fused_optimizer", wanted.fused_optimizer, on_cuda, on_cuda, reasons),
        compile_model=str(wanted.compile_model),
        gradient_accumulation_steps=wanted.gradient_accumulation_steps,
        distributed=_distributed(wanted, place, (precision, device.type), reasons),
        rank=place.rank,
        local_rank=place.local_rank,
        world_size=place.world_size,
        reasons=reasons,
        wanted=wanted,
    )


def _switch(name: str, wanted: bool | str, supported: bool, on_cuda: bool, reasons: dict[str, str]) -> bool:
    if wanted == "auto":
        why = "supported" if supported else "not-supported" if on_cuda else "gpu-only"
        reasons[name] = sentence(f"library.because-{why}", name=name)
        return supported
    return bool(wanted)


# -- the device -----------------------------------------------------------------------------------------------------------


def device_of(wanted: TrainingConfig) -> Any:
    """Where a training with this configuration would be."""
    return _device(wanted, ranks.here(), {})


def _device(wanted: TrainingConfig, place: Ranks, reasons: dict[str, str]) -> Any:
    if not wanted.use_gpu or wanted.device_id == "cpu":
        reasons["device"] = sentence("choice.cpu-configured")
        return torch.device("cpu")
    if isinstance(wanted.device_id, str) and not wanted.device_id.startswith("cuda"):
        return torch.device(wanted.device_id)
    if not torch.cuda.is_available():
        reasons["device"] = sentence("library.because-no-cuda", torch=torch.__version__)
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if place.world_size > 1:
        index = place.local_rank
        reasons["device"] = sentence("library.because-rank", rank=place.rank, index=index)
    elif wanted.device_id is not None:
        index = int(str(wanted.device_id).removeprefix("cuda:"))
        reasons["device"] = sentence("library.because-asked", name="device_id", value=index)
    else:
        index = _best_card(count, reasons)
    if index >= count:
        raise ConfigurationError("library.no-such-device", index=index, count=count)
    return torch.device("cuda", index)


def _best_card(count: int, reasons: dict[str, str]) -> int:
    """As `flatout run` chooses, found again among those that torch counts in this process."""
    if count == 1:
        reasons["device"] = sentence("choice.only", name=torch.cuda.get_device_name(0), index=0, cards=1)
        return 0
    gpus = nvml.driver().gpus
    known: list[Gpu] = [] if isinstance(gpus, Missing) else gpus
    choice = choose(known, environment=dict(os.environ)) if known else None
    for index in range(count):
        uuid = str(getattr(torch.cuda.get_device_properties(index), "uuid", ""))
        if choice is not None and choice.uuid and uuid and uuid in choice.uuid:
            reasons["device"] = sentence(f"choice.{choice.reason}", **choice.params)
            return index
    reasons["device"] = sentence("library.because-first", count=count)
    return 0


def take(device: Any, fraction: float | None) -> None:
    """Events and streams belong to the current device: this one is made it; its memory is capped where that is asked for."""
    if device.type != "cuda":
        return
    torch.cuda.set_device(device)
    if fraction is not None:
        torch.cuda.set_per_process_memory_fraction(fraction, device)


# -- precision and ranks --------------------------------------------------------------------------------------------------


def _precision(wanted: TrainingConfig, device: Any, place: Ranks, reasons: dict[str, str]) -> tuple[str, bool]:
    """The precision, and whether it is only a candidate that has to show itself faster first."""
    asked = str(wanted.precision)
    if asked == "no":
        return "no", False
    if asked == "fp8" and (why := float8.obstacle(device)) is not None:
        raise ConfigurationError(why[0], **why[1])
    if asked != "auto":
        if asked == "bf16" and device.type == "cuda" and torch.cuda.get_device_capability(device)[0] < FIRST_WITH_TF32:
            raise ConfigurationError("library.no-bf16", name=torch.cuda.get_device_name(device))
        return asked, False
    best = best_precision(torch, device)
    if best == "no":
        reasons["precision"] = sentence("library.because-no-units", device=str(device))
        return "no", False
    if place.world_size > 1:
        reasons["precision"] = sentence("library.because-capability", precision=best)
        return best, False
    more = best == "bf16" and float8.obstacle(device) is None
    reasons["precision"] = sentence("library.because-tried-both" if more else "library.because-tried", precision=best)
    return best, True


def _distributed(wanted: TrainingConfig, place: Ranks, beside: tuple[str, str], reasons: dict[str, str]) -> str:
    precision, device_type = beside
    mode = ranks.mode_of(wanted.distributed, place)
    if wanted.multi_gpu and mode == "no":
        reasons["distributed"] = sentence("library.because-one-process")
    if mode == "fsdp" and precision in ("fp16", "fp8"):
        raise ConfigurationError("library.fsdp-precision", precision=precision)
    if mode == "fsdp" and device_type != "cuda" and not torch_is_at_least(2, 6):
        raise ConfigurationError("library.fsdp-cpu", found=torch.__version__)
    return mode
