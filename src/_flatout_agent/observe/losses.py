"""The loss, read without waiting for the device: copied aside on some steps, and looked at when it has arrived."""

from __future__ import annotations

from typing import Any

from _flatout_agent.observe.memory_state import Thinned

SLOTS = 8


class Losses:
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
            self._add(step, float(loss.detach()))
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
            self._add(step, float(self._buffer[slot]))

    def _add(self, step: int, value: float) -> None:
        self._series.add(step, value)

    def told(self) -> dict[str, Any]:
        self._resolve()
        # JSON has no NaN: it is told as a word.
        return {"losses": [[step, value if abs(value) < 1e300 else str(value)] for step, value in self._series.points]}
