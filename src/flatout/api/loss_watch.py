"""Detects a loss that is not finite or diverges, without waiting for the device.

Every 16th loss is copied to the host behind the training's back and looked at when it has arrived, some steps later.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from statistics import median
from typing import Any

from flatout.api.torch_part import torch

EVERY = 16  # losses; a power of two, because the hot path asks with a mask
SLOTS = 8
NOT_FINITE_IN_A_ROW = 2  # one may be an overflow that the scaler leaves out
RECENT = 6
WORSE = 3.0  # times the best level so far
LEAST_RISE = 0.1  # below, a loss near zero wanders

FINE, DIVERGED, NOT_FINITE = "fine", "diverged", "not-finite"


class Course:
    """Pure: the losses seen so far, one after the other, in a few numbers. A level is the median of a few neighbouring losses.

    Diverged: the level of the last few is far above the best level there was before them, and above the first loss.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._levels: deque[float] = deque(maxlen=RECENT)  # too young to count as the best
        self._best = math.inf
        self._first: float | None = None
        self.not_finite = 0
        self.verdict = FINE

    def add(self, loss: float) -> None:
        if not math.isfinite(loss):
            self.not_finite += 1
            self.verdict = NOT_FINITE if self.not_finite >= NOT_FINITE_IN_A_ROW else self.verdict
            return
        self.not_finite = 0
        self._first = loss if self._first is None else self._first
        self._recent.append(loss)
        if len(self._recent) == RECENT:
            if len(self._levels) == RECENT:
                self._best = min(self._best, self._levels[0])
            self._levels.append(median(self._recent))
            self.verdict = DIVERGED if self._is_far_above(self._levels[-1], self._first) else FINE

    def _is_far_above(self, level: float, first: float) -> bool:
        return 0 < self._best < math.inf and level > max(WORSE * self._best, self._best + LEAST_RISE, first)


def judged(losses: Iterable[float]) -> str:
    course = Course()
    for loss in losses:
        course.add(loss)
    return course.verdict


class LossWatch:
    """`note` from the hot path, once in `EVERY`; `verdict` of what has arrived."""

    def __init__(self, device: Any, is_together: bool = False) -> None:
        """`is_together`: ranks that are told the same losses come to the same verdict at the same look."""
        on_cuda = device.type == "cuda"
        self._is_together = is_together
        self._host = torch.zeros(SLOTS, dtype=torch.float32, pin_memory=on_cuda)
        self._events = [torch.cuda.Event() for _ in range(SLOTS)] if on_cuda else None
        self._pending: list[int] = []
        self._next = 0
        self._course = Course()

    def note(self, loss: Any) -> None:
        self.collect()
        slot = self._next
        if slot in self._pending:
            return  # the device is far behind; this one is not looked at
        self._host[slot].copy_(loss.detach().reshape(()), non_blocking=True)
        if self._events is not None:
            self._events[slot].record()
        self._pending.append(slot)
        self._next = (slot + 1) % SLOTS

    def collect(self) -> None:
        while self._pending and self._has_arrived(self._pending[0]):
            self._course.add(float(self._host[self._pending.pop(0)]))

    def _has_arrived(self, slot: int) -> bool:
        if self._events is None:
            return True
        if not self._is_together:
            return bool(self._events[slot].query())
        if len(self._pending) < 2:
            return False  # the newest is for the next look, whether it is there already or not
        self._events[slot].synchronize()  # of sixteen losses ago: it is there
        return True

    def verdict(self, has_scaler: bool) -> str:
        """Without a scaler, which leaves such a step out, one loss that is not finite has already reached the weights."""
        self.collect()
        return NOT_FINITE if self._course.not_finite and not has_scaler else self._course.verdict

    def forget(self) -> None:
        """After a change of precision the next losses are judged by themselves."""
        self._pending.clear()
        self._course = Course()
