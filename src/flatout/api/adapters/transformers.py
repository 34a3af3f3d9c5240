"""Hugging Face Transformers: a callback that feeds the monitor."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from flatout.api.monitor import PerformanceMonitor


class TransformersMonitor(TrainerCallback):  # type: ignore[misc]  # to the checker Transformers is Any, as torch is
    """`Trainer(callbacks=[TransformersMonitor()])`.

    The Trainer does not tell its callbacks what was in a batch: samples are counted from its arguments, so that the smaller
    last batch of an epoch counts as a whole one. Losses are those that it logs.
    """

    def __init__(self, monitor: PerformanceMonitor | None = None) -> None:
        self.monitor = PerformanceMonitor() if monitor is None else monitor
        self._loss: float | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.monitor.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.monitor.step(int(args.train_batch_size) * int(args.gradient_accumulation_steps), self._loss)
        self._loss = None

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        loss = (logs or {}).get("loss")
        self._loss = float(loss) if isinstance(loss, int | float) else self._loss

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # An evaluation is announced only when it is over; its first batch is the first to be told.
        self.monitor.pause()

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.monitor.resume()

    on_predict = on_evaluate

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.monitor.stop()
