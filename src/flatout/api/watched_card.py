"""The GPU that a monitor samples: by a thread through NVML, and through torch's own memory statistics."""

from __future__ import annotations

import sys
from typing import Any

from flatout.api import refusals
from flatout.api.card_account import CardAccounts, card_of
from flatout.api.performance import Spread
from flatout.base.records import Missing
from flatout.launch.watcher import Watcher
from flatout.machine import nvml
from flatout.machine.machine_facts import Gpu
from flatout.machine.run_look import DeviceLook, DeviceMemory, GpuChange, GpuDuring, Regime
from flatout.machine.timed import Question
from flatout.measure.gpu_state import compare

FASTEST_S = 0.005  # for the thread: it must not eat the loop's own time
AFTER_LIMIT_S = 5.0

ON_CPU, NO_GPU = Missing("on-cpu"), Missing("no-device")


class WatchedCard:
    """`place` is what `place_of` made of a device: None (torch's current one), an index, or "cpu"."""

    def __init__(self, place: int | str | None, every_s: float) -> None:
        self._place = place
        self.accounts = CardAccounts()
        self.watcher = Watcher(told=self.accounts.add, every_s=max(every_s, FASTEST_S))
        self._after: list[Gpu] | Missing = Missing("not-asked")

    def start(self) -> None:
        self.watcher.__enter__()

    def stop(self) -> None:
        """Ends the looking and looks once more, for the comparison with what was before."""
        self.watcher.__exit__(None, None, None)
        if self.watcher.before:
            self._after = Question("nvml-after", AFTER_LIMIT_S, lambda: nvml.driver().gpus).answer()

    def cuda(self) -> Any:
        """torch's CUDA side where it has started; None where the training is on the processor."""
        torch = sys.modules.get("torch")
        return None if self._place == "cpu" or torch is None or not torch.cuda.is_initialized() else torch.cuda

    def index(self) -> int:
        """As torch counts."""
        if isinstance(self._place, int):
            return self._place
        cuda = self.cuda()
        return int(cuda.current_device()) if cuda is not None else 0

    def gpu(self) -> Gpu | None:
        """As the driver describes it."""
        return None if self._place == "cpu" else card_of(self.watcher.before, self.index(), sys.modules.get("torch"))

    @property
    def missing(self) -> Missing:
        """Why there is none."""
        return ON_CPU if self._place == "cpu" else self.watcher.missing or NO_GPU

    def spread(self, name: str) -> Spread | Missing:
        gpu = self.gpu()
        return self.missing if gpu is None else self.accounts.spread(gpu.index, name)

    def during(self) -> GpuDuring | None:
        gpu = self.gpu()
        return next((one for one in self.watcher.during if gpu is not None and one.index == gpu.index), None)

    def changes(self) -> list[GpuChange]:
        """Until stopped, what is there now stands for what is there after."""
        after = self._after if isinstance(self._after, list) else self.accounts.last
        return compare(self.watcher.before, after, self.watcher.during, self.look())

    def change(self) -> GpuChange | Missing:
        gpu = self.gpu()
        if gpu is None:
            return self.missing
        if isinstance(self._after, Missing):
            return self._after
        return next((one for one in self.changes() if one.index == gpu.index), Missing("not-reported"))

    def look(self) -> DeviceLook:
        return DeviceLook(regime=None if self.cuda() is None else Regime(device=f"cuda:{self.index()}"))

    def memory(self) -> DeviceMemory | None:
        """torch's own books: no question to the driver."""
        cuda = self.cuda()
        if cuda is None:
            return None
        index = self.index()
        books = cuda.memory_stats(index)
        return DeviceMemory(
            allocated_bytes=cuda.memory_allocated(index),
            reserved_bytes=cuda.memory_reserved(index),
            peak_bytes=cuda.max_memory_allocated(index),
            peak_reserved_bytes=cuda.max_memory_reserved(index),
            total_bytes=cuda.get_device_properties(index).total_memory,
            retries=books.get("num_alloc_retries", 0),
            ooms=books.get("num_ooms", 0),
        )


def place_of(device: Any) -> int | str | None:
    """None (torch's current device), an index, or "cpu"."""
    if device is None:
        return None
    if isinstance(device, int) and not isinstance(device, bool):
        return refusals.whole_number("device", device)
    kind, index = getattr(device, "type", None), getattr(device, "index", None)  # a torch.device
    if isinstance(device, str):
        kind, _, number = device.partition(":")
        index = int(number) if number.isdecimal() else None
        if number and index is None:
            kind = ""
    if kind == "cpu":
        return "cpu"
    if kind in ("cuda", "gpu"):
        return None if index is None or callable(index) else int(index)
    if kind is None:
        raise refusals.ArgumentTypeError(
            "error.argument-type", argument="device", wanted="str | int | torch.device", found=type(device).__name__
        )
    raise refusals.ArgumentValueError("error.argument-device", argument="device", value=str(device))
