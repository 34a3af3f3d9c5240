"""Lightning: a callback that feeds the monitor."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.callbacks import Callback

from _flatout_agent.timeline.samples_in_batch import size_of
from flatout.api.monitor import PerformanceMonitor


class LightningMonitor(Callback):  # type: ignore[misc]  # to the checker Lightning is Any, as torch is
    """`Trainer(callbacks=[LightningMonitor()])`; `.monitor.report()` and `.monitor.advice()` at any time. A batch is a step."""

    def __init__(self, monitor: PerformanceMonitor | None = None) -> None:
        self.monitor = PerformanceMonitor() if monitor is None else monitor

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.monitor.start()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        # Under manual optimization a step gives nothing back.
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        self.monitor.step(size_of(batch), loss)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self.monitor.pause()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.monitor.resume()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.monitor.stop()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.monitor.stop()
