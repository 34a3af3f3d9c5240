"""The steps that are looked at closely: one in eight at first, later one in 64. What each part sees goes to the journal."""

from __future__ import annotations

from typing import Any

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.timeline.hooks import precision_and_device
from _flatout_agent.timeline.hooks.cpu_contention import Cores
from _flatout_agent.timeline.hooks.device_lag import Lag
from _flatout_agent.timeline.hooks.device_memory import MemoryState
from _flatout_agent.timeline.hooks.device_reads import Reads
from _flatout_agent.timeline.hooks.loss_values import Losses
from _flatout_agent.timeline.hooks.script_listeners import Listeners
from _flatout_agent.timeline.samples_in_batch import is_plain_tensor, parts_of, shape_of

GRAPHS = 3  # how many graphs behind a loss are looked through: a regime does not change


class CloseLook:
    """Called in the middle of such a step, when the backward pass begins, and when the journal is written."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._memory = MemoryState(torch)
        self._lag = Lag(torch)
        self._losses = Losses(torch)
        self._listeners = Listeners(torch)
        self._regime: dict[str, Any] = {}
        self._graphs = 0
        self.reads = Reads()
        self._cores = Cores()
        self.tokens = 0
        self.tokened_samples = 0

    def mid_step(self, ticks: int, arguments: Any) -> None:
        try:
            with self._torch._C.DisableTorchFunction():  # no override and no mode of the script's hears what we ask
                self._mid_step(ticks, arguments)
        except Exception as error:
            fault("closely.mid_step", error)

    def _mid_step(self, ticks: int, arguments: Any) -> None:
        loss = arguments[0] if arguments else None
        if isinstance(loss, (list, tuple)):
            loss = loss[0] if loss else None
        if not is_plain_tensor(self._torch, type(loss)):
            return
        if self._graphs < GRAPHS:
            self._graphs += 1
            for name, seen in precision_and_device.of_graph(loss).items():
                self._regime[name] = self._regime.get(name, False) or seen
        cuda = self._torch.cuda
        on_device = cuda.is_initialized() and getattr(loss, "is_cuda", False)
        if on_device and (self._listeners.hear() or cuda.is_current_stream_capturing()):
            return
        self._losses.sample(ticks, loss)
        if on_device:
            self._lag.sample()
            self._memory.sample(ticks)

    def stepped(self, optimizer: Any) -> None:
        """An optimizer steps for the first time."""
        try:
            self._cores.begin()
            with self._torch._C.DisableTorchFunction():
                self._regime.update(precision_and_device.of_optimizer(self._torch, optimizer))
        except Exception as error:
            fault("closely.stepped", error)

    def count_tokens(self, batch: Any, samples: int) -> None:
        """Whole numbers in two dimensions are tokens; counted on some batches, and scaled."""
        for part in (batch, *parts_of(batch, type(batch))):
            shape = shape_of(part, type(part))
            if shape is not None and len(shape) == 2 and self._is_whole(part):
                self.tokens += shape[0] * shape[1]
                self.tokened_samples += samples
                return

    def _is_whole(self, tensor: Any) -> bool:
        with self._torch._C.DisableTorchFunction():
            return str(tensor.dtype) in ("torch.int64", "torch.int32")

    def told(self, samples: int) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        try:
            fields.update(self._memory.told())
            fields.update(self._lag.told())
            fields.update(self._losses.told())
            fields.update(self.reads.told())
            fields.update(self._cores.told())
            if self._regime:
                fields["regime"] = self._regime
            if self.tokened_samples:
                fields["tokens"] = round(self.tokens / self.tokened_samples * samples)
        except Exception as error:
            fault("closely.told", error)
        return fields
