"""Whether the loss still goes where it should, seen without ever waiting for the device.

Every 16th loss is copied to the host behind the training's back and looked at when it has arrived, some steps later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from flatout.api.torch_part import torch

EVERY = 16  # losses; a power of two, because the hot path asks with a mask
SLOTS = 8
NOT_FINITE_IN_A_ROW = 2  # one may be an overflow that the scaler leaves out
RECENT = 6
WORSE = 3.0  # times the best level so far

FINE, DIVERGED, NOT_FINITE = "fine", "diverged", "not-finite"


def judged(losses: Sequence[float]) -> str:
    """Pure. Diverged: the level of the last few is far above the best level there was, and they only rise."""
    last = losses[-NOT_FINITE_IN_A_ROW:]
    if len(last) == NOT_FINITE_IN_A_ROW and not any(map(math.isfinite, last)):
        return NOT_FINITE
    finite = [loss for loss in losses if math.isfinite(loss)]
    if len(finite) < 2 * RECENT:
        return FINE
    levels = [median(finite[end - RECENT : end]) for end in range(RECENT, len(finite) + 1)]
    best = min(levels[:-RECENT], default=levels[0])
    rise = levels[-1] - best
    return DIVERGED if best > 0 and levels[-1] > WORSE * best and rise > 0.1 and levels[-1] > finite[0] else FINE


class LossWatch:
    """`note` from the hot path, once in `EVERY`; `verdict` of what has arrived."""

    def __init__(self, device: Any) -> None:
        on_cuda = device.type == "cuda"
        self._host = torch.zeros(SLOTS, dtype=torch.float32, pin_memory=on_cuda)
        self._events = [torch.cuda.Event() for _ in range(SLOTS)] if on_cuda else None
        self._pending: list[int] = []
        self._next = 0
        self.losses: list[float] = []

    def note(self, loss: Any) -> None:
        self.collect()
        slot = self._next
        if slot in self._pending:
            return  # the device is far behind; this one is not looked at
        self._host[slot].copy_(loss.detach(), non_blocking=True)
        if self._events is not None:
            self._events[slot].record()
        self._pending.append(slot)
        self._next = (slot + 1) % SLOTS

    def collect(self) -> None:
        while self._pending and (self._events is None or self._events[self._pending[0]].query()):
            self.losses.append(float(self._host[self._pending.pop(0)]))
        del self.losses[:-256]

    def verdict(self) -> str:
        return judged(self.losses)

    def forget(self) -> None:
        """After a change of precision the next losses are judged by themselves."""
        self._pending.clear()
        self.losses.clear()
