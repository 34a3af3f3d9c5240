"""`GPUOptimizer`: device, batch size, precision and memory from what is known of the machine. Derived, and it says so:
`flatout tune` and `BatchSizeOptimizer` measure.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from _flatout_agent.core import memory_cap as agent_memory
from flatout.api import refusals
from flatout.api.card_account import card_of
from flatout.api.diagnosis import DeviceSelectionResult
from flatout.base.records import Missing
from flatout.base.words import Words, choose_language
from flatout.doctor.queries import known
from flatout.machine import cards
from flatout.machine.choose import Choice, Wish, choose
from flatout.machine.gather import gather
from flatout.machine.machine_facts import Facts, Gpu
from flatout.machine.versions import at_least
from flatout.tune.batch import estimate as batch_estimate
from flatout.tune.batch.estimate import BatchEstimate

LOG = logging.getLogger("flatout")

LEAST_MEMORY = 64 << 20  # less is a card's gigabytes handed over as a plain number
ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"


@dataclass
class OptimizedDevice(DeviceSelectionResult):
    """The device to train on, why, and the variables that make a fresh program see it alone. Bytes."""

    here: str = "cpu"  # what torch calls it in this very process, whatever was exported
    memory_total: int | Missing = field(default_factory=lambda: Missing("no-device"))
    memory_free: int | Missing = field(default_factory=lambda: Missing("no-device"))
    compute_capability: str | Missing = field(default_factory=lambda: Missing("no-device"))


@dataclass
class MixedPrecisionConfig:
    enabled: bool
    dtype: str  # "bf16", "fp16", or "no"
    grad_scaler: bool  # fp16 wants one, bf16 does not
    reason: str
    measured: bool = False  # True only where somebody timed it; whether it pays depends on the model

    @property
    def torch_dtype(self) -> Any:
        """What `torch.autocast` takes; float32 where mixed precision is off."""
        import torch

        return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.dtype, torch.float32)


@dataclass
class MemoryConfig:
    """Bytes; `environment` must be set before CUDA starts."""

    total_bytes: int | Missing
    usable_bytes: int | Missing  # what a training may plan with: less the head-room, and the cap where there is one
    headroom: float
    memory_fraction: float | None = None
    environment: dict[str, str] = field(default_factory=dict)
    applied: list[str] = field(default_factory=list)  # what was set in this process
    notes: list[str] = field(default_factory=list)


class EstimatedBatchSize(int):
    """A whole number that knows that it is an estimate, and how it was made."""

    estimate: BatchEstimate
    reason: str


class GPUOptimizer:
    """`device_id` counts as torch does (a configuration's id), `gpu_id` as nvidia-smi does, or is a UUID (what a user types);
    two that disagree are an error that shows both. `facts` are gathered here unless given.
    """

    def __init__(
        self, device_id: Wish = None, *, gpu_id: Wish = None, facts: Facts | None = None, language: str | None = None
    ) -> None:
        if facts is not None and not isinstance(facts, Facts):
            raise refusals.ArgumentTypeError(
                "error.argument-type", argument="facts", wanted="Facts", found=type(facts).__name__
            )
        self._configured, self._asked = device_id, gpu_id
        self._given = facts
        self._words = Words(choose_language(language))

    def optimize_device_selection(self) -> OptimizedDevice:
        """The discrete card before the integrated one, then memory, capability and bandwidth; the reason is logged."""
        choice, gpu = self._choice, self._gpu
        reason = self._words(f"choice.{choice.reason}", **choice.params)
        LOG.info(reason)
        nothing = Missing("no-device")
        return OptimizedDevice(
            device=choice.device,
            device_id=choice.index,
            device_name=choice.name,
            reason=reason,
            exports=choice.exports,
            tested=choice.tested,
            here=self._here(),
            memory_total=gpu.memory_total_bytes if gpu else nothing,
            memory_free=gpu.memory_free_bytes if gpu else nothing,
            compute_capability=self._capability if gpu else nothing,
        )

    def optimize_batch_size(self, model_size: int, gpu_memory: int, *, sample_bytes: int | None = None) -> int:
        """An estimate from two numbers of bytes: the weights (`sum(p.nbytes for p in model.parameters())`) and the card's
        memory (6 GiB are `6 * 2**30`). 0 where not even one sample would fit.

        It assumes Adam in float32 and activations about as large as the weights for each sample; `sample_bytes` replaces the
        latter where it is known. The answer is an int with `.reason`; `BatchSizeOptimizer` measures instead.
        """
        refusals.whole_number("model_size", model_size, least=1)
        refusals.whole_number("gpu_memory", gpu_memory, least=1)
        if gpu_memory < LEAST_MEMORY:
            raise refusals.ArgumentValueError("error.not-in-bytes", argument="gpu_memory", value=gpu_memory)
        if sample_bytes is not None:
            refusals.whole_number("sample_bytes", sample_bytes, least=1)
        made = batch_estimate.estimate(model_size, gpu_memory, self._headroom, sample_bytes)
        size = EstimatedBatchSize(made.size)
        size.estimate = made
        size.reason = self._words(
            "optimizer.batch-estimated" if made.size else "optimizer.nothing-fits",
            size=made.size,
            fixed=_mib(made.fixed_bytes),
            each=_mib(made.per_sample_bytes),
            usable=_mib(made.usable_bytes),
        )
        LOG.info(size.reason)
        return size

    def configure_mixed_precision(self) -> MixedPrecisionConfig:
        """By capability: bf16 from 8.0 on, fp16 with tensor cores before; off where no unit makes it faster."""
        dtype, reason, params = self._precision()
        return MixedPrecisionConfig(
            enabled=dtype != "no",
            dtype=dtype,
            grad_scaler=dtype == "fp16",
            reason=self._words(f"optimizer.{reason}", **params),
        )

    def setup_memory_optimization(self, memory_fraction: float | None = None) -> MemoryConfig:
        """`memory_fraction` caps what torch may take of each card, now where CUDA has started, else when it does."""
        share = None if memory_fraction is None else refusals.share("memory_fraction", memory_fraction)
        gpu = self._gpu
        total = gpu.memory_total_bytes if gpu else Missing("no-device")
        config = MemoryConfig(
            total_bytes=total,
            usable_bytes=int(total * (share or 1.0) * (1 - self._headroom)) if isinstance(total, int) else total,
            headroom=self._headroom,
            memory_fraction=share,
        )
        if gpu is None:
            config.notes.append(self._words("optimizer.no-card"))
            return config
        if gpu.vendor == "nvidia" and known(self._facts.system.name) == "Linux":
            # Elsewhere torch warns that it has no such allocator.
            config.environment[ALLOCATOR] = "expandable_segments:True"
        torch = sys.modules.get("torch")
        if share is not None and torch is not None and torch.cuda.is_available():
            agent_memory.cap(torch, share)
            config.applied.append("memory_fraction")
        config.notes.append(self._words("optimizer.cache"))
        return config

    # -- what is known ---------------------------------------------------------------------------------------------

    @cached_property
    def _facts(self) -> Facts:
        return self._given if self._given is not None else gather(sys.executable, ask_torch=False)

    @cached_property
    def _choice(self) -> Choice:
        facts = self._facts
        return choose(
            known(facts.driver.gpus) or [],
            pci=known(facts.hardware.pci) or [],
            environment=facts.application.environment,
            asked=self._asked,
            configured=self._configured,
            backend=_built_for() if self._given is None else None,
        )

    def _here(self) -> str:
        """CUDA counts what the variables leave; other backends have one device here."""
        choice, gpus = self._choice, known(self._facts.driver.gpus) or []
        if choice.backend != "cuda":
            return choice.device
        torch, environment = sys.modules.get("torch"), self._facts.application.environment
        places = (
            place for place in range(len(gpus)) if (card_of(gpus, place, torch, environment) or gpus[0]).index == choice.index
        )
        return f"cuda:{next(places, 0)}"

    @property
    def _gpu(self) -> Gpu | None:
        index = self._choice.index
        if self._choice.backend == "cpu" or index is None:
            return None
        cards_here = known(self._facts.driver.gpus) or []
        return next((gpu for gpu in cards_here if gpu.index == index and gpu.name == self._choice.name), None)

    @property
    def _capability(self) -> str | Missing:
        gpu = self._gpu
        if gpu is None:
            return Missing("no-device")
        return known(gpu.capability) or cards.capability_of(gpu.name) or Missing("not-reported")

    @property
    def _headroom(self) -> float:
        return batch_estimate.headroom(known(self._facts.system.name))

    def _precision(self) -> tuple[str, str, dict[str, str]]:
        capability, name = self._capability, self._choice.name
        if isinstance(capability, Missing) or self._choice.backend != "cuda":
            return "no", "precision-unknown", {}
        card = cards.find(name)
        if at_least(capability, "8.0"):
            return "bf16", "precision-bf16", {"name": name, "capability": capability}
        if at_least(capability, "7.0") and (card is None or card.tensor_cores is not False):
            return "fp16", "precision-fp16", {"name": name, "capability": capability}
        return "no", "precision-no-units", {"name": name, "capability": capability}


def _built_for() -> str | None:
    """The backend of the torch at hand; None where there is none to ask."""
    try:
        import torch
    except (ImportError, OSError):
        return None
    if torch.version.cuda:
        return "cuda"
    if torch.version.hip:
        return "rocm"
    if torch.backends.mps.is_built():
        return "mps"
    return "cpu"


def _mib(count: int) -> int:
    return round(count / 2**20)
