"""The loss, read without waiting for the device: copied aside on some steps, and looked at when it has arrived.

Without an operation of torch's where it lies in the host's memory: a profiler or a mode of the script's hears nothing of it.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from _flatout_agent.timeline.hooks.device_memory import Thinned

SLOTS = 8


class Losses:
    """`sample` is called where no override and no mode hears what a tensor is asked, and for a device where nobody listens."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._series = Thinned()
        self._buffer: Any = None
        self._pending: list[tuple[int, int, Any]] = []  # (step, slot, event)
        self._next = 0

    def sample(self, step: int, loss: Any) -> None:
        if type(loss) is not self._torch.Tensor or loss.numel() != 1 or not loss.is_floating_point():
            return
        if loss.is_cpu:
            value = number_in_memory(loss)
            if value is not None:
                self._add(step, value)
        elif loss.is_cuda:
            self._resolve()
            if len(self._pending) < SLOTS:
                self._send(step, loss)

    def _send(self, step: int, loss: Any) -> None:
        torch = self._torch
        if self._buffer is None:
            self._buffer = torch.empty(SLOTS, dtype=torch.float32, pin_memory=True)
        slot, self._next = self._next, (self._next + 1) % SLOTS
        with torch.no_grad():
            self._buffer[slot].copy_(loss.detach().reshape(()), non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(loss.device))
        self._pending.append((step, slot, event))

    def _resolve(self) -> None:
        while self._pending and self._pending[0][2].query():
            step, slot, _ = self._pending.pop(0)
            self._add(step, ctypes.c_float.from_address(self._buffer.data_ptr() + 4 * slot).value)

    def _add(self, step: int, value: float) -> None:
        self._series.add(step, value)

    def told(self) -> dict[str, Any]:
        self._resolve()
        # JSON has no NaN: it is told as a word.
        return {"losses": [[step, value if abs(value) < 1e300 else str(value)] for step, value in self._series.points]}


def number_in_memory(tensor: Any) -> float | None:
    """The one number of a tensor on the host; None where it is not laid out as one."""
    place = tensor.data_ptr()
    if not place or tensor.is_neg() or str(tensor.layout) != "torch.strided":
        return None
    kind = str(tensor.dtype)
    if kind == "torch.float32":
        return ctypes.c_float.from_address(place).value
    if kind == "torch.float64":
        return ctypes.c_double.from_address(place).value
    if kind == "torch.float16":
        return float(struct.unpack("=e", ctypes.string_at(place, 2))[0])
    if kind == "torch.bfloat16":  # the upper half of a float32
        return float(struct.unpack("=f", struct.pack("=I", ctypes.c_uint16.from_address(place).value << 16))[0])
    return None
