"""What one process's journal reports, line by line: steps, phases, loss, epoch. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from _flatout_agent.wire import PHASES
from flatout.base.records import Missing
from flatout.measure.readings import losses_of, memory_of
from flatout.watch.moments import Span

Line = dict[str, Any]

NANO = 1e-9
RECENT = 30  # spans that tell the pace
NOT_YET = Missing("no-steps")

SET_BY_S = 2.0  # the machine's clock was set while it trained


class Story:
    """`spawned`: when the run began by the machine's clock; the journal counts from there."""

    def __init__(self, spawned: float) -> None:
        self._spawned = spawned
        self._moved = 0.0
        self._last: Line | None = None
        self._turned: list[int] = []  # steps at which an epoch was seen to have turned
        self._spans: list[Span] = []  # the last ones
        self._first: tuple[float, int] | None = None  # time and steps of the first window with steps
        self.pid: int | None = None
        self.rank = 0
        self.steps = self.samples = 0
        self.phases: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self.losses: list[tuple[int, float]] = []
        self.not_finite_from: int | Missing = NOT_YET
        self.finished = False
        self.ran_out_of_memory = False

    def read(self, lines: Sequence[Line], now: float) -> list[Span]:
        """The spans between the windows among these lines, in the time of `now`."""
        found = []
        windows = [line for line in lines if line.get("kind") == "window" and self._sound(line)]
        if len(windows) == 1 and self._last is not None:
            self._meet(windows[0], now)
        for line in lines:
            kind = line.get("kind")
            if kind == "process":
                self.pid, self.rank = int(line["pid"]), int(line.get("rank") or 0)
            elif kind == "end":
                self.finished = True
            elif kind == "oom":
                self.ran_out_of_memory = True
        for window in windows:
            span = self._span(window)
            if span is not None:
                found.append(span)
        self._spans = [*self._spans, *found][-RECENT:]
        return found

    def _sound(self, window: Line) -> bool:
        phases, t = window.get("phases"), window.get("t")
        return isinstance(t, int | float) and isinstance(phases, list) and len(phases) == len(PHASES)

    def _meet(self, window: Line, now: float) -> None:
        """A line that has just been written tells how the two clocks lie to each other."""
        apart = now - (self._spawned + self._moved + window["t"] * NANO)
        # Later than said: it may have lain there for a while. Only a clock that was set shows more than a poll's pause.
        if apart < -SET_BY_S or apart > 10 * SET_BY_S:
            self._moved += apart

    def _span(self, window: Line) -> Span | None:
        before, self._last = self._last, window
        steps_before, steps = _steps(before or {}), _steps(window)
        begun = before["t"] if before else 0
        if window["t"] <= begun or steps < steps_before:
            return None
        end = self._spawned + self._moved + window["t"] * NANO
        totals = before["phases"] if before else [0] * len(PHASES)
        phases = {name: max(0.0, (now - then) * NANO) for name, now, then in zip(PHASES, window["phases"], totals, strict=True)}
        self._count(window, steps, end)
        memory, memory_before = memory_of(window.get("memory")), memory_of((before or {}).get("memory"))
        collected = _more(window, before, "gc")
        return Span(
            start=end - (window["t"] - begun) * NANO,
            end=end,
            steps=steps - steps_before,
            samples=max(0, int(_more(window, before, "samples") or 0)),
            phases=phases,
            outside_s=max(0.0, (_more(window, before, "script_outside") or 0.0) * NANO),
            retries=max(0, memory.retries - (memory_before.retries if memory_before else 0)) if memory else 0,
            reserved_bytes=memory.reserved_bytes if memory else Missing("not-reported"),
            loss=self.losses[-1][1] if self.losses and math.isfinite(self.losses[-1][1]) else Missing("not-reported"),
            gc_s=Missing("not-reported") if collected is None else max(0.0, collected * NANO),
        )

    def _count(self, window: Line, steps: int, end: float) -> None:
        turns = int(window.get("turns") or 0)
        while len(self._turned) < turns:
            self._turned.append((self.steps + steps) // 2)  # somewhere between this window and the one before
        self.steps, self.samples = steps, int(window.get("samples") or 0)
        self.phases = {name: spent * NANO for name, spent in zip(PHASES, window["phases"], strict=True)}
        losses = losses_of(window)
        self.losses, self.not_finite_from = losses.points, losses.not_finite_from
        if self._first is None and steps:
            self._first = (end, steps)

    # -- what it comes to ----------------------------------------------------------------------------------------------------

    @property
    def epoch_steps(self) -> int | None:
        """Steps of an epoch, as those that were seen to turn tell it (to a window's length)."""
        if not self._turned:
            return None
        return max(1, round(self._turned[-1] / len(self._turned)))

    @property
    def epoch(self) -> float | Missing:
        """1.5: in the middle of the second. Without a turn seen the first is under way, and how far is not known."""
        if not self.steps:
            return NOT_YET
        if not self.epoch_steps:
            return 0.0
        inside = (self.steps - self._turned[-1]) / self.epoch_steps
        return len(self._turned) + min(0.99, max(0.0, inside))

    @property
    def step_s(self) -> float | Missing:
        """Seconds of a step, lately, by the clock on the wall: validation and checkpoints are in it, the start-up is not."""
        stepped = [span for span in self._spans if span.steps]
        steps = sum(span.steps for span in stepped)
        spent = math.fsum(span.end - span.start - span.phases.get("startup", 0.0) for span in stepped)
        return spent / steps if steps else NOT_YET

    @property
    def samples_per_s(self) -> float | Missing:
        stepped = [span for span in self._spans if span.steps]
        samples, spent = sum(span.samples for span in stepped), math.fsum(span.training_s for span in stepped)
        return samples / spent if samples and spent > 0 else Missing("no-batches")

    @property
    def last_window(self) -> float | None:
        return None if self._last is None else self._spawned + self._moved + self._last["t"] * NANO

    @property
    def pause_s(self) -> float:
        """How long the agent is silent between two lines, by design: longer the longer a run has lasted."""
        return 1.0 if self._last is None else max(1.0, self._last["t"] * NANO / 500)

    def left_s(self, steps: int | None) -> float | Missing:
        """Estimated, by the mean pace since the first steps: what comes now and then is in it."""
        end = self.last_window
        if steps is None or self._first is None or end is None:
            return Missing("length-unknown")
        passed, done = end - self._first[0], self.steps - self._first[1]
        if done <= 0 or passed <= 0:
            return NOT_YET
        return max(0.0, (steps - self.steps) * passed / done)


def _steps(window: Line) -> int:
    """No torch optimizer stepped, or a compiled one: the backward passes are the clock."""
    return int(window.get("steps") or window.get("backwards") or 0)


def _more(window: Line, before: Line | None, name: str) -> float | None:
    value = window.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    then = (before or {}).get(name)
    return float(value) - (float(then) if isinstance(then, int | float) else 0.0)
