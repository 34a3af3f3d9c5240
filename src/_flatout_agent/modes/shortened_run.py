"""A run that is only measured, ended early where it is too long: its epoch after some seconds, the process after the turn.

All else is as in any run under `flatout run`. The epoch ends as the loader ends it: its sampler has no further indices, what
is on its way is delivered, validation and checkpoint follow; where there is time, once more with the next epoch. The process
then ends at a step boundary of the one after it, after its exit handlers, whose time belongs to the run.
"""

from __future__ import annotations

import atexit
import os
from time import perf_counter_ns
from typing import Any, Callable, Iterator

from _flatout_agent.core.parent_process import Parent
from _flatout_agent.modes.driver import Course, Driver

TURNS = 2  # where there is time
AFTER_TURN = 3  # steps of the next epoch: the first belongs to the turn
SETTLED = 24  # steps: settings have come on and warmed up by then; of slow steps fewer
SETTLED_SLOWLY, SETTLING = 10, 0.5  # steps, after this share of the time to the cut
TIMED_STEPS = 20  # before the cut, and after the settling; or twice the time to it
FEWEST_TIMED = 8  # without them nothing is known: a run that is late goes on for them …
LATE = 2  # … to so many times the stop
MOST_ON_THE_WAY = 64  # batches: an epoch that has not ended by then does not end by its sampler


class EarlyEnd(Course):
    """Around the course of an ordinary run. `cut_s`: seconds of the settled loop; `stop_s`: from the first step."""

    def __init__(
        self, course: Course, ended: Callable[[], None], cut_s: float, stop_s: float, parent: Parent | None = None
    ) -> None:
        """`ended` is to be told that the script's own code is over, before the exit handlers."""
        self._course = course
        self._ended = ended
        self._cut_ns, self._stop_ns = int(cut_s * 1e9), int(stop_s * 1e9)
        self._goes_on = True  # the course wants to hear of further steps
        self._cut = False  # the epoch of what is trained on ends now
        self._cut_at = 0  # the step at which that was wanted
        self._steps = self._turned_at = self._first = 0
        self._settled = self._timed_from = 0  # when, and the step
        self._turns = 0
        self._turn_began = 0  # when the last one did
        self._turn_took = 0  # the first one since the loop had settled
        self._since_cut = 0  # batches of the epoch that is to end
        self._driver: Any = None
        self._parent = parent or Parent()

    def prepare(self, driver: Driver) -> None:
        self._driver = driver
        self._course.prepare(driver)
        driver.feed = self._feed

    def begin(self, driver: Driver) -> None:
        self._course.begin(driver)

    def stepped(self, driver: Driver, now: int) -> bool:
        self._parent.end_if_gone()
        if self._goes_on:
            self._goes_on = self._course.stepped(driver, now)
        self._steps = driver.scene.steps_done
        self._first = self._first or now
        ran = now - self._first
        if ran >= self._stop_ns and (self._timed_enough() or ran >= LATE * self._stop_ns):
            self._leave(driver)
        if not self._settled:
            self._settle(driver, now)
            return True
        past_turn = self._turns > 0 and self._steps >= self._turned_at + AFTER_TURN
        if past_turn and not self._turn_took:
            self._tell_of_turn(driver, now)
        ran = now - self._settled
        if ran < self._cut_ns or (self._steps < self._timed_from + TIMED_STEPS and ran < 2 * self._cut_ns):
            return True
        if not driver.scene.loaders or (past_turn and not self._time_for_a_turn(now)):
            self._leave(driver)
        if past_turn or not self._cut_at:
            self._cut, self._cut_at = True, self._cut_at or self._steps
        return True

    def _tell_of_turn(self, driver: Driver, now: int) -> None:
        """The first one pays for what happens once, as do its validation and checkpoint: the next are as all later ones."""
        self._turn_took = now - self._turn_began
        self._tell(driver, "turned")

    def _time_for_a_turn(self, now: int) -> bool:
        return self._turns < TURNS and now - self._first + self._turn_took < self._stop_ns

    def _tell(self, driver: Driver, kind: str) -> None:
        driver.synchronize()
        driver.tape.tell()
        clock = driver.tape.clock
        recurring = {name: work.told() for name, work in clock.recurring.items() if work.count}
        told = {"steps": clock.steps, "turns": clock.turns, "phases": clock.totals, "script_outside": clock.script_outside}
        driver.write(kind, step=self._steps, recurring=recurring, **told)

    def _timed_enough(self) -> bool:
        return self._settled > 0 and self._steps >= self._timed_from + FEWEST_TIMED

    def _settle(self, driver: Driver, now: int) -> None:
        """From here on the loop is as it stays: what was done until now is written down, so that it can be taken off."""
        slow = self._steps >= SETTLED_SLOWLY and now - self._first >= SETTLING * self._cut_ns
        if (self._steps < SETTLED and not slow) or driver.scene.handover.unsettled():
            return
        self._settled, self._timed_from, self._turns = now, self._steps, 0
        self._tell(driver, "settled")

    def iterator_began(self, iterator: int) -> None:
        self._course.iterator_began(iterator)

    def finish(self, driver: Driver) -> None:
        self._course.finish(driver)

    def gave_up(self) -> None:
        self._course.gave_up()

    def _feed(self, iterator: Any, original: Any) -> Any:
        handover = self._driver.scene.handover
        trained_from = self._is_trained_from(iterator)
        try:
            if trained_from:
                self._limit(iterator)
            return handover.next_batch(iterator, original) if handover.busy else original(iterator)
        except StopIteration:
            if trained_from:
                self._turns += 1
                self._turned_at, self._turn_began = self._steps, perf_counter_ns()
                self._cut, self._since_cut = False, 0
            raise

    def _limit(self, iterator: Any) -> None:
        """Its sampler ends with the cut. One that was in other hands before its first batch is left as if by a `break`."""
        if self._cut:
            self._since_cut += 1
            if self._since_cut > MOST_ON_THE_WAY:
                self._driver.scene.handover.epoch_over(iterator)
                raise StopIteration
        sampler = getattr(iterator, "_sampler_iter", None)
        if sampler is not None and type(sampler) is not Limited:
            iterator._sampler_iter = Limited(sampler, lambda: self._cut)

    def _is_trained_from(self, iterator: Any) -> bool:
        """As far as can be known: a validation on the same data fetches where gradients are off."""
        dataset = getattr(iterator, "_dataset", None)
        known = self._driver.scene.loaders
        return self._driver.torch.is_grad_enabled() and any(loader.dataset is dataset for loader in known)

    def _leave(self, driver: Driver) -> None:
        driver.synchronize()
        driver.tape.tell()
        clock = driver.tape.clock
        driver.write("ended-early", step=self._steps, turns=self._turns, cut_at=self._cut_at, batches=clock.batches)
        try:
            self._ended()
            atexit._run_exitfuncs()
        finally:
            os._exit(0)


class Limited:
    """A sampler that has no further indices once its epoch is to end."""

    def __init__(self, rest: Iterator[Any], ends: Callable[[], bool]) -> None:
        self._rest = rest
        self._ends = ends

    def __iter__(self) -> Limited:
        return self

    def __next__(self) -> Any:
        if self._ends():
            raise StopIteration
        return next(self._rest)
