"""The step clock: every moment of the training thread belongs to one phase, and only one.

Hooks call in at boundaries (a batch arrived, a backward pass began, a step ended). The time since the last boundary
is given to the phase that this boundary reveals: what came before a backward pass was forward; a batch that was
followed by another without a backward pass was validation. So the phases add up to the wall time by construction.
Nothing here synchronises, prints or allocates per step.
"""

from __future__ import annotations

import threading
from typing import Callable

from _flatout_agent.loaders import Loaders, LoaderUse
from _flatout_agent.wire import PHASES, WARM_STEPS

STARTUP, INPUT, COPY, FORWARD, BACKWARD, OPTIMIZER, DEVICE_WAIT, COMPILE, VALIDATION, CHECKPOINT, SHUTDOWN, UNEXPLAINED = range(
    len(PHASES)
)

# Where the training thread is, seen from the last boundary.
_START, _BATCH, _AFTER_BACKWARD, _AFTER_STEP, _ELSEWHERE = range(5)

SAMPLE_EVERY = 8  # steps between those whose copies are timed on the device too

Window = Callable[["StepClock", int], None]


class StepClock:
    """Totals in nanoseconds, fed by the hooks of one training thread."""

    def __init__(self, began: int, window: Window) -> None:
        self.off = False
        self.owner = threading.main_thread().ident
        self.began = began
        self.totals = [0] * len(PHASES)
        self.steps = 0
        self.samples = 0
        self.batches = 0
        self.unsized_batches = 0
        self.validation_batches = 0
        self.backwards = 0
        self.foreign_batches = 0
        self.warm: dict[str, object] | None = None
        self.loaders = Loaders()
        self.sampling = False
        self.copy_device_ns = 0
        self.copy_host_ns = 0
        self._window = window
        self._next_window = began
        self._state = _START
        self._mark = began
        self._input = 0  # loader time whose batch has not shown yet whether it is trained on
        self._size = 0
        self._use: LoaderUse | None = None  # the loader that the batch in hand came from
        self._copy = 0  # since the mark, inside the running phase
        self._wait = 0
        self._compile = 0
        self._round: set[int] = set()  # optimizers that have stepped since the step began
        self._stepping = 0  # the optimizer inside whose step we are, and how deep
        self._depth = 0

    # -- boundaries ----------------------------------------------------------------------------------------------

    def fetched(self, began: int, ended: int, size: int, use: LoaderUse | None = None) -> None:
        self._stepping = 0  # a step that raised never said that it ended
        self._leave(began)
        self._input += ended - began
        self._size = size
        self._use = use
        self._state = _BATCH
        self._mark = ended

    def loader_started(self, began: int, ended: int) -> None:
        self._leave(began)
        self._input += ended - began
        self._state = _ELSEWHERE
        self._mark = ended

    def exhausted(self, began: int, ended: int) -> None:
        """The loader had no further batch: what it cost goes with what its batches were for."""
        phase = VALIDATION if self._state == _BATCH else INPUT
        self._leave(began)
        self.totals[phase] += ended - began + self._input
        self._input = 0
        self._state = _ELSEWHERE
        self._mark = ended

    def backward_began(self, now: int) -> None:
        self._train_on_batch(now)

    def backward_ended(self, now: int) -> None:
        self._give(now, BACKWARD)
        self.backwards += 1
        self._state = _AFTER_BACKWARD
        if now >= self._next_window:  # here and not only at steps: some scripts update their parameters by hand
            self.write_window(now)

    def step_began(self, now: int, optimizer: int) -> None:
        if self._stepping == optimizer:
            self._depth += 1  # a subclass's step that calls its parent's: one step
            return
        self._stepping = optimizer
        self._depth = 0
        if self._state == _AFTER_BACKWARD:
            self._give(now, OPTIMIZER)
        else:
            # No backward pass yet: the step runs a closure (L-BFGS, Lightning), which holds it.
            self._train_on_batch(now)
        self._state = _ELSEWHERE

    def step_ended(self, now: int, optimizer: int) -> None:
        if self._depth and self._stepping == optimizer:
            self._depth -= 1
            return
        self._stepping = 0
        self._give(now, OPTIMIZER)
        self._state = _AFTER_STEP
        if self._round and optimizer not in self._round:
            self._round.add(optimizer)  # a further optimizer of the same step (GAN, one per layer)
            return
        self._round = {optimizer}
        self.steps += 1
        self.sampling = self.steps % SAMPLE_EVERY == 0
        if self.steps == WARM_STEPS:
            self.warm = {"samples": self.samples, "phases": list(self.totals)}
        if now >= self._next_window:
            self.write_window(now)

    def saved(self, began: int, ended: int) -> None:
        self._leave(began)
        self.totals[CHECKPOINT] += ended - began
        self._state = _ELSEWHERE
        self._mark = ended

    # -- inside a phase ------------------------------------------------------------------------------------------

    def copied(self, nanoseconds: int) -> None:
        if self._state != _START:  # moving the model over belongs to the start-up
            self._copy += nanoseconds

    def waited(self, nanoseconds: int) -> None:
        if self._state != _START:
            self._wait += nanoseconds

    def compiled(self, nanoseconds: int) -> None:
        if self._state != _START:
            self._compile += nanoseconds

    # -- the journal ---------------------------------------------------------------------------------------------

    def write_window(self, now: int) -> None:
        # Windows grow with the run, so that a week of training leaves some thousand lines.
        self._next_window = now + max(500_000_000, (now - self.began) // 500)
        self._window(self, now)

    def finish(self, now: int) -> None:
        self._leave(now)
        self._mark = now
        self.off = True

    # -- how time is given away ----------------------------------------------------------------------------------

    def _give(self, now: int, phase: int) -> None:
        """The time since the mark, less the copies and waits inside it, is `phase`'s."""
        totals = self.totals
        totals[phase] += now - self._mark - self._copy - self._wait - self._compile
        totals[COPY] += self._copy
        totals[DEVICE_WAIT] += self._wait
        totals[COMPILE] += self._compile
        self._copy = self._wait = self._compile = 0
        self._mark = now

    def _leave(self, now: int) -> None:
        """A boundary that is not part of training on the batch in hand."""
        if self._state == _START:
            self._give(now, STARTUP)
        elif self._state == _BATCH:
            self.totals[VALIDATION] += self._input + now - self._mark
            self._input = self._copy = self._wait = self._compile = 0
            self.validation_batches += 1
        else:
            self._give(now, UNEXPLAINED)

    def _train_on_batch(self, now: int) -> None:
        """The batch in hand, if any, proves to be trained on: what led here was forward."""
        if self._state == _START:
            self._give(now, STARTUP)
            return
        self._give(now, FORWARD)
        if self._state == _BATCH:
            self.totals[INPUT] += self._input
            if self._use is not None:
                self._use.wait += self._input
                self._use.batches += 1
            self._input = 0
            self.batches += 1
            self.samples += self._size
            if not self._size:
                self.unsized_batches += 1
