"""`GPUPerformanceAnalyzer`: samples the GPU, its memory, and compares the speed of a training on GPU and CPU."""

from __future__ import annotations

import contextlib
import copy
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from _flatout_agent.timeline.samples_in_batch import size_of
from flatout.api import refusals, trial_batch
from flatout.api.card_account import CardAccounts, card_of
from flatout.api.kept_state import kept
from flatout.api.performance import Spread
from flatout.api.training_trial import Loss, Timed, TrainingTrial
from flatout.base.records import Missing
from flatout.base.words import Words, choose_language
from flatout.launch.watcher import Watcher
from flatout.machine import nvml
from flatout.machine.card_totals import used
from flatout.machine.machine_facts import Gpu, GpuProcess
from flatout.machine.timed import Question

Told = TypeVar("Told")

NVML_LIMIT_S = 10.0
LOOK_EVERY_S = 0.1
FIVE_TIMES = 5.0  # what a GPU is promised to be worth (property 4)

NO_GPU = Missing("no-device")

# In all four of these, what could not be known is None, and `missing` has its reason under the field's name.


@dataclass
class UtilizationMetrics:
    """One card over some seconds, whatever ran on it: percent, watts, degrees Celsius, MHz."""

    device: str | None
    seconds: float
    gpu_utilization: Spread | None
    power_w: Spread | None
    temperature_c: Spread | None
    sm_clock_mhz: int | None  # at the last look
    sm_clock_max_mhz: int | None
    held_back: dict[str, int] = field(default_factory=dict)  # reason -> looks at which it held the working card back
    missing: dict[str, Missing] = field(default_factory=dict)


@dataclass
class MemoryMetrics:
    """Bytes. Of the card: by all programs, as its driver counts. Allocated and reserved: by torch in this process."""

    device: str | None
    total: int | None
    used: int | None
    free: int | None
    utilization: float | None  # percent of the card
    allocated: int | None
    reserved: int | None  # with torch's cache
    peak_allocated: int | None
    allocator_retries: int | None  # the card was full, and the cache had to be given back
    processes: list[GpuProcess] | None = None
    missing: dict[str, Missing] = field(default_factory=dict)


@dataclass
class PerformanceMetrics:
    """A training measured."""

    gpu_utilization: float | None  # percent
    memory_utilization: float | None  # percent of the card, at the peak
    training_speed: float  # samples/second
    throughput_improvement: float | None  # vs CPU: 5.0 is five times as fast
    power_consumption: float | None  # watts
    device: str = "cpu"
    batch_size: int = 0
    workload: str = ""
    missing: dict[str, Missing] = field(default_factory=dict)


@dataclass
class ComparisonResult:
    cpu_samples_per_s: float
    gpu_samples_per_s: float | None
    speedup: float | None
    meets_target: bool | None  # five times
    batch_size: int
    workload: str
    reason: str
    missing: dict[str, Missing] = field(default_factory=dict)


class GPUPerformanceAnalyzer:
    """`model` and `sample_data` (a batch as a loop gets it) are what is timed; without them a small convolutional net of
    flatout's own. The model is copied for each device and never changed. `device` is torch's index.
    """

    def __init__(
        self,
        model: Any = None,
        sample_data: Any = None,
        *,
        loss: Loss | None = None,
        device: int | None = None,
        language: str | None = None,
    ) -> None:
        if (model is None) != (sample_data is None):
            missing = "sample_data" if sample_data is None else "model"
            raise refusals.ArgumentTypeError("error.argument-type", argument=missing, wanted="given", found="None")
        self._given = (model, sample_data, loss)
        self._place = 0 if device is None else refusals.whole_number("device", device)
        self._words = Words(choose_language(language))

    def measure_gpu_utilization(self, seconds: float = 1.0) -> UtilizationMetrics:
        """Looks at the card for so long, ten times a second. Start it beside a training, or call it from another thread."""
        span = refusals.share("seconds", seconds, most=3600.0)
        accounts = CardAccounts()
        with Watcher(told=accounts.add, every_s=min(LOOK_EVERY_S, span / 4)) as watcher:
            watcher.began.wait(NVML_LIMIT_S)
            began = time.perf_counter()
            time.sleep(span if watcher.before else 0.0)
        card, missing = self._card(watcher.before), watcher.missing or NO_GPU
        last = next((gpu for gpu in accounts.last if card is not None and gpu.index == card.index), None)
        during = next((one for one in watcher.during if card is not None and one.index == card.index), None)

        def spread(name: str) -> Spread | Missing:
            return missing if card is None else accounts.spread(card.index, name)

        return _told(
            UtilizationMetrics,
            device=missing if card is None else card.name,
            seconds=time.perf_counter() - began,
            gpu_utilization=spread("utilisation"),
            power_w=spread("power_draw_w"),
            temperature_c=spread("temperature_c"),
            sm_clock_mhz=missing if last is None else last.sm_clock_mhz,
            sm_clock_max_mhz=missing if last is None else last.sm_clock_max_mhz,
            held_back=dict(during.held_back) if during else {},
        )

    def analyze_memory_usage(self) -> MemoryMetrics:
        answer = Question("nvml", NVML_LIMIT_S, lambda: nvml.driver().gpus).answer()
        card = None if isinstance(answer, Missing) else self._card(answer)
        missing = answer if isinstance(answer, Missing) else NO_GPU
        taken = missing if card is None else used(card)
        total = missing if card is None else card.memory_total_bytes
        return _told(
            MemoryMetrics,
            device=missing if card is None else card.name,
            total=total,
            used=taken,
            free=missing if card is None else card.memory_free_bytes,
            utilization=100.0 * taken / total if isinstance(taken, int) and isinstance(total, int) and total else missing,
            **self._allocator(missing if card is None else Missing("not-reported", "CUDA has not started in this process")),
            processes=missing if card is None else card.processes,
        )

    def benchmark_training_speed(self, *, batch_size: int | None = None, seconds: float = 1.0) -> PerformanceMetrics:
        """On the GPU where torch has one, and on the processor beside it; on the processor alone where not."""
        with self._workload(batch_size) as (model, batch, size, name):
            on_cpu = self._time(model, batch, size, "cpu", seconds)
            torch = _torch()
            gpu = f"cuda:{self._place}" if torch.cuda.is_available() else None
            on_gpu = self._time(model, batch, size, gpu, seconds) if gpu else None
        timed = on_gpu or on_cpu
        peak = timed.peak_bytes
        return _told(
            PerformanceMetrics,
            gpu_utilization=timed.utilisation,
            memory_utilization=100.0 * peak / torch.cuda.get_device_properties(gpu).total_memory
            if gpu and isinstance(peak, int)
            else NO_GPU,
            training_speed=_rate(timed),
            throughput_improvement=_rate(on_gpu) / _rate(on_cpu) if on_gpu else NO_GPU,
            power_consumption=timed.power_w,
            device=gpu or "cpu",
            batch_size=size,
            workload=name,
        )

    def compare_cpu_vs_gpu_performance(self, *, batch_size: int | None = None, seconds: float = 1.0) -> ComparisonResult:
        """The same steps on both. Where there is no GPU the processor's figure stands alone, and nothing is made up."""
        with self._workload(batch_size) as (model, batch, size, name):
            torch = _torch()
            cpu = _rate(self._time(model, batch, size, "cpu", seconds))
            if not torch.cuda.is_available():
                why = Missing("no-device", "torch.cuda.is_available() is False")
                reason = self._words("analyzer.no-gpu", rate=f"{cpu:.1f}")
                missing = dict.fromkeys(("gpu_samples_per_s", "speedup", "meets_target"), why)
                return ComparisonResult(cpu, None, None, None, size, name, reason, missing)
            gpu = _rate(self._time(model, batch, size, f"cuda:{self._place}", seconds))
        times = gpu / cpu
        key = "analyzer.faster" if times >= FIVE_TIMES else "analyzer.below-target"
        reason = self._words(key, times=f"{times:.1f}", cpu=f"{cpu:.1f}", gpu=f"{gpu:.1f}", size=size)
        return ComparisonResult(cpu, gpu, times, times >= FIVE_TIMES, size, name, reason)

    # -- the parts -------------------------------------------------------------------------------------------------

    def _time(self, model: Any, batch: Any, size: int, device: str | None, seconds: float) -> Timed:
        torch = _torch()
        there = copy.deepcopy(model).to(device)
        timed = TrainingTrial(torch, there, loss=self._given[2]).run(batch, size, seconds, look=True)
        if not timed.ran:
            raise refusals.ArgumentValueError("error.batch-does-not-fit", argument="batch_size", value=size, device=device)
        return timed

    @contextlib.contextmanager
    def _workload(self, batch_size: int | None) -> Iterator[tuple[Any, Any, int, str]]:
        torch = _torch()
        model, sample_data, _ = self._given
        if batch_size is not None:
            refusals.whole_number("batch_size", batch_size, least=1)
        if model is None:
            with kept(torch, torch.nn.Module()):
                torch.manual_seed(0)
                yield _own_model(torch), torch.randn(32, 3, 32, 32), batch_size or 32, "flatout-cnn"
            return
        if not isinstance(model, torch.nn.Module):
            raise refusals.ArgumentTypeError(
                "error.argument-type", argument="model", wanted="torch.nn.Module", found=type(model).__name__
            )
        with kept(torch, model):
            batch = trial_batch.first_batch(torch, sample_data)
            yield model, batch, batch_size or size_of(batch), type(model).__name__

    def _card(self, gpus: list[Gpu]) -> Gpu | None:
        return card_of(gpus, self._place, sys.modules.get("torch"))

    def _allocator(self, missing: Missing) -> dict[str, Any]:
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return dict.fromkeys(("allocated", "reserved", "peak_allocated", "allocator_retries"), missing)
        cuda, place = torch.cuda, self._place
        return {
            "allocated": cuda.memory_allocated(place),
            "reserved": cuda.memory_reserved(place),
            "peak_allocated": cuda.max_memory_allocated(place),
            "allocator_retries": cuda.memory_stats(place).get("num_alloc_retries", 0),
        }


def _told(kind: Callable[..., Told], **figures: Any) -> Told:
    missing = {name: figure for name, figure in figures.items() if isinstance(figure, Missing)}
    return kind(**{name: None if name in missing else figure for name, figure in figures.items()}, missing=missing)


def _torch() -> Any:
    from flatout.api.torch_part import torch

    return torch


def _rate(timed: Timed) -> float:
    assert isinstance(timed.samples_per_s, float)
    return timed.samples_per_s


def _own_model(torch: Any) -> Any:
    """Small enough for a processor, with enough arithmetic for a card to show what it can."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 10),
    )  # fmt: skip
