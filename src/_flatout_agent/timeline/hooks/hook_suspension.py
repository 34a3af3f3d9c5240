"""Observers on tensors that have nothing to tell step aside.

They are called dozens of times a step (an Adam reads every parameter's step count), and where copies and waiting for the
device are next to nothing, the host is what holds the loop up: there every microsecond of ours would count. So they are
lifted, and put back for a second now and then to see whether that still holds. Where they do have something to
tell, the device is the slower one, and hides their cost. Until the script uses a device there is nothing that they could
tell, and they are not put on at all.
"""

from __future__ import annotations

from typing import Any, Callable

from _flatout_agent.core.patches import Patches
from _flatout_agent.timeline.phase_totals import COPY, DEVICE_WAIT
from _flatout_agent.timeline.step_clock import StepClock
from _flatout_agent.wire import PHASES, TRAINING_PHASES

NEXT_TO_NOTHING = 0.01  # of the time in the loop
LITTLE = 0.03  # where steps that are only glanced at keep the account of it
FIRST_LOOK = 5_000_000_000  # a loss that is read every hundred steps must have its chance
LATER_LOOK = 1
FEWEST_STEPS = 256  # before the first rest
REST, MOST_REST = 15_000_000_000, 60_000_000_000  # twice as long each time, while there is nothing to tell

_IN_THE_LOOP = [PHASES.index(name) for name in TRAINING_PHASES]


class Resting:
    """Told of every reading of the tape."""

    def __init__(
        self, clock: StepClock, on_tensors: Patches, glances: Any = None, device_at_hand: Callable[[], bool] = lambda: True
    ) -> None:
        self._clock = clock
        self._glances = glances
        self._on_tensors = on_tensors
        self._device_at_hand = device_at_hand
        self._look, self._rest = FIRST_LOOK, REST
        self._since = 0  # when this look, or this rest, began; 0 before the first step
        self._loop = self._told = 0
        on_tensors.withhold()
        self.look_for_device()

    def look_for_device(self) -> None:
        if not self._on_tensors.withheld or not self._device_at_hand():
            return
        self._look, self._rest, self._since = FIRST_LOOK, REST, 0
        self._on_tensors.withheld = False
        self._on_tensors.wake()
        if self._glances is not None:
            self._glances.end()

    def after_reading(self, now: int) -> None:
        self.look_for_device()
        if not self._since:
            if self._clock.steps:
                self._begin(now)
        elif self._on_tensors.resting:
            if now - self._since >= self._rest:
                self._rest = min(2 * self._rest, MOST_REST)
                self._on_tensors.wake()
                self._begin(now)
            elif self._glances is not None:
                self._glances.consider(now)
        elif now - self._since >= self._look and self._clock.steps >= FEWEST_STEPS:
            if self._told_of() - self._told < self._most() * (self._in_the_loop() - self._loop):
                self._on_tensors.rest()
                self._look = LATER_LOOK
                if self._glances is not None:
                    self._glances.learn()
                    self._glances.consider(now)
            else:
                self._rest = REST
            self._begin(now)

    def _most(self) -> float:
        return LITTLE if self._glances is not None and self._glances.is_plain() else NEXT_TO_NOTHING

    def _begin(self, now: int) -> None:
        self._since = now
        self._loop, self._told = self._in_the_loop(), self._told_of()
        if self._glances is not None and not self._on_tensors.resting:
            self._glances.begin_look(now)

    def _in_the_loop(self) -> int:
        return sum(self._clock.totals[phase] for phase in _IN_THE_LOOP)

    def _told_of(self) -> int:
        return self._clock.totals[COPY] + self._clock.totals[DEVICE_WAIT]
