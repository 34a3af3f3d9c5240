"""A user's training, as the guide shows it; `mypy --strict` reads it, and the test runs it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import flatout


def train(path: str) -> flatout.TrainingAccelerator:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data: DataLoader[tuple[Tensor, ...]] = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 2)), batch_size=8)

    accelerator = flatout.TrainingAccelerator("auto")
    model, optimizer, loader = accelerator.prepare(model, optimizer, data)
    for _ in range(loader.epoch, 2):
        for x, y in loader:
            with accelerator.autocast():
                loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            accelerator.step(optimizer)
        accelerator.save(path)
    return accelerator


def look(accelerator: flatout.TrainingAccelerator, data: DataLoader[Tensor]) -> str:
    config: flatout.AcceleratedConfig = accelerator.config
    wanted: flatout.TrainingConfig = config.wanted
    loader: flatout.OptimizedDataLoader[Tensor] = accelerator.optimize_data_loading(data)
    for batch in loader:
        size: int = batch.shape[0]
        return f"{config.device} {wanted.precision} {size} {accelerator.skipped_steps} {accelerator.notes}"
    monitor: flatout.PerformanceMonitor = accelerator.enable_performance_monitoring()
    report: flatout.PerformanceReport = monitor.report()
    return str(report)
