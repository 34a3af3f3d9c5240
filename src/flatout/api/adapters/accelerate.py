"""Hugging Face Accelerate: a tracker that feeds the monitor, and the objects that its arguments need."""

from __future__ import annotations

from typing import Any

from accelerate.tracking import GeneralTracker
from accelerate.utils import DataLoaderConfiguration, TorchDynamoPlugin

from flatout.api import refusals
from flatout.api.monitor import PerformanceMonitor


class AccelerateMonitor(GeneralTracker):  # type: ignore[misc]  # to the checker Accelerate is Any, as torch is
    """`Accelerator(log_with=AccelerateMonitor())`, `accelerator.init_trackers("x")`, and after each step
    `accelerator.log({"samples": len(batch), "loss": loss})`. `accelerator.end_training()` stops it.
    """

    name = "flatout"
    requires_logging_directory = False

    def __init__(self, monitor: PerformanceMonitor | None = None) -> None:
        super().__init__()
        self.monitor = PerformanceMonitor() if monitor is None else monitor

    @property
    def tracker(self) -> PerformanceMonitor:
        return self.monitor

    def start(self) -> None:
        self.monitor.start()

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """The monitor keeps no configuration."""

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        if "samples" not in values:
            raise refusals.UnknownNameError("error.argument-missing-key", argument="values", name="samples")
        self.monitor.step(values["samples"], values.get("loss"))

    def finish(self) -> None:
        self.monitor.stop()


def compiling(mode: str) -> Any:
    return TorchDynamoPlugin(backend="inductor", mode=mode)


def not_blocking() -> Any:
    return DataLoaderConfiguration(non_blocking=True)
