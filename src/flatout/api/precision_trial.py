"""Measures in the first training steps whether a lower precision is faster: both precisions in alternation."""

from __future__ import annotations

import time
from typing import Any

from flatout.api.torch_part import torch
from flatout.base.records import Missing
from flatout.measure.statistics import Answer, Comparison, Pair, compare, plausible_gain

WARM = 3  # untimed steps of each way at the beginning: kernels are chosen, caches filled
SETTLE = 1  # untimed steps after each switch
TIMED = 5
BLOCKS = (False, True, True, False, False, True, True, False)  # whether in low precision: A B B A A B B A
PAIRS = len(BLOCKS) // 2
LOOKS = (PAIRS, 2 * PAIRS, 4 * PAIRS)  # steps of a millisecond are restless: what four pairs leave open, more may tell
WORTH = 0.02  # what can hardly give so much is not looked at any longer

Steps = list[tuple[bool, bool]]  # (low precision, edge of a timed block) for the beginning of every step


def warming() -> Steps:
    return [(low, False) for low in (False, True) for _ in range(WARM)]


def timed() -> Steps:
    steps = []
    for low in BLOCKS:
        steps += [(low, False)] * SETTLE + [(low, True)] + [(low, False)] * (TIMED - 1)
    return steps


class PrecisionTrial:
    """`begin` before the first step and `stepped` after each tell whether the next one runs in low precision."""

    def __init__(self, device: Any, base: str = "no", candidate: str = "bf16") -> None:
        self.base, self.candidate = base, candidate
        self._device = device
        self._steps = warming() + timed()
        self._step = 0
        self._edges: list[Any] = []  # begin and end of every timed block
        self._timing = False
        self.result: Comparison | None = None

    def begin(self) -> bool:
        return self._steps[0][0]

    def stepped(self) -> bool:
        """A step has ended. True: the next runs in low precision."""
        self._step += 1
        low, edge = self._steps[self._step] if self._step < len(self._steps) else (False, False)
        ends = self._timing and (self._step >= len(self._steps) or low != self._steps[self._step - 1][0] or self._is_full())
        if ends:
            self._mark()
            self._timing = False
        if edge:
            self._mark()
            self._timing, self._since = True, self._step
        if self._step >= len(self._steps):
            self._finish()
            low = self._step < len(self._steps) and self._steps[self._step][0]
        return low

    def _is_full(self) -> bool:
        return self._step - self._since >= TIMED

    def _mark(self) -> None:
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._edges.append(event)
        else:
            self._edges.append(time.perf_counter())

    def _finish(self) -> None:
        """The last event may be still to come: then the next step asks again."""
        if self._device.type == "cuda" and not self._edges[-1].query():
            return
        seconds = [self._between(self._edges[i], self._edges[i + 1]) for i in range(0, len(self._edges), 2)]
        rates = [TIMED / max(each, 1e-9) for each in seconds]
        pairs = []
        for first in range(0, len(rates), 2):
            low_first = BLOCKS[first % len(BLOCKS)]
            plain, low = (first + 1, first) if low_first else (first, first + 1)
            pairs.append(Pair(rates[plain], rates[low], not low_first))
        found = compare(pairs, Missing("too-few"), looks=LOOKS)
        if self._is_open(found, pairs):
            while len(self._steps) < self._step:  # those that were made while the last event was waited for
                self._steps.append((False, False))
            rounds = (next(look for look in LOOKS if look > len(pairs)) - len(pairs)) // PAIRS
            self._steps += [step for _ in range(rounds) for step in timed()]
        else:
            self.result = found

    def _is_open(self, found: Comparison, pairs: list[Pair]) -> bool:
        if found.answer in (Answer.FASTER, Answer.SLOWER) or len(pairs) >= LOOKS[-1]:
            return False
        hope = plausible_gain(pairs)
        return not isinstance(hope, float) or hope >= WORTH

    def _between(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end) / 1000 if self._device.type == "cuda" else end - begin)

    @property
    def is_faster(self) -> bool:
        return self.result is not None and self.result.answer is Answer.FASTER

    @property
    def winner(self) -> str:
        return self.candidate if self.is_faster else self.base

    def told(self) -> dict[str, str]:
        """The two, the ratio of their throughputs and its interval, in figures."""
        result = self.result
        names = {"precision": self.candidate, "base": "float32" if self.base == "no" else self.base}
        values = {} if result is None else {"ratio": result.ratio, "low": result.lower, "high": result.upper}
        return names | {name: "?" if isinstance(value, Missing) else f"{value:.2f}" for name, value in values.items()}
