"""A user's measurements, as the guide shows them; `mypy --strict` reads the file, and a test runs it."""

from __future__ import annotations

import torch
from torch import nn

import flatout
from flatout.api.adapters import lightning_arguments, loader_arguments
from flatout.base.records import Missing


def measure(seconds: float) -> str:
    model = nn.Linear(4, 2)
    optimizer = flatout.GPUOptimizer()
    device: flatout.OptimizedDevice = optimizer.optimize_device_selection()
    precision: flatout.MixedPrecisionConfig = optimizer.configure_mixed_precision()
    memory: flatout.MemoryConfig = optimizer.setup_memory_optimization()
    estimated: int = optimizer.optimize_batch_size(sum(part.nbytes for part in model.parameters()), 6 * 2**30)

    size, statistics = flatout.BatchSizeOptimizer(model, {"use_amp": False}, largest=32).find_optimal_batch_size(
        torch.randn(8, 4), target_gpu_util=85.0, seconds=seconds
    )
    reached: bool | Missing = statistics.target_reached

    analyzer = flatout.GPUPerformanceAnalyzer(model, torch.randn(8, 4))
    metrics: flatout.PerformanceMetrics = analyzer.benchmark_training_speed(seconds=seconds)
    compared: flatout.ComparisonResult = analyzer.compare_cpu_vs_gpu_performance(seconds=seconds)
    speed: float = metrics.training_speed + compared.cpu_samples_per_s
    watts: float | None = metrics.power_consumption  # None where the driver does not say; metrics.missing says why
    assert watts is not None or metrics.missing["power_consumption"].reason
    return f"{device.here} {precision.dtype} {memory.headroom} {estimated >= size} {reached} {speed > 0}"


def arguments() -> dict[str, object]:
    profile = {"precision": "bf16", "workers": 4, "pin_memory": True}
    trainer = lightning_arguments(profile)
    return {**trainer, **loader_arguments(profile), "left out": [one.knob for one in trainer.left_out]}


def watch(steps: int) -> list[str]:
    with flatout.PerformanceMonitor("cpu") as monitor:
        for _ in range(steps):
            monitor.step(8, loss=0.5)
    report: flatout.PerformanceReport = monitor.report()
    return [str(report), *monitor.advice()]
