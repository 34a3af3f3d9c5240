"""What the hooks saw, in the order in which it happened, until the clock reads it.

Per step a hook only appends a line. Reading is done for many steps at once, about once a second: the same work costs a
third of it then, because the processor finds its code and data at hand, where once a step it finds the script's.
"""

from __future__ import annotations

import threading
from time import perf_counter_ns
from typing import Any, Callable

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.timeline.step_clock import StepClock

Call = Callable[..., None]  # of the clock's

MOST_LINES = 4096  # an evaluation takes no step, and must not fill the memory
SECOND = 1_000_000_000
EARLY_TICKS, EARLY, LATE = 128, 7, 63  # one in 8 of the first steps is looked at closely, later one in 64


class Tape:
    """The hooks' side: what they append to, and the few things that they must know at once."""

    def __init__(self, clock: StepClock, after_reading: Callable[[int], None]) -> None:
        self.clock = clock
        self.after_reading = [after_reading]
        self.look: Any = None  # a CloseLook: at the steps for which `sampling` is true
        self.every_loss: Callable[[Any], None] | None = None  # for the comparison of curves alone
        self.driver: Any = None  # a Driver, where knobs are put on
        self.feed: Callable[[Any, Any], Any] | None = None  # stands between the script and its loader, if anything does
        self.epochs: Callable[[Any, Any], Any] | None = None
        self.glances: Any = None  # a Glances, which lifts hooks while `glancing`
        self.own_lines: Any = None  # an OwnLines
        self.met: Callable[[], None] | None = None  # an optimizer that had not stepped before
        self.inputs: Any = None  # an Inputs, until it knows how many samples a step takes
        self.moved: Callable[[], None] | None = None  # to another thread: what began there before was not listened to
        self.look_for_device: Callable[[], None] = lambda: None  # where the script may have begun to use one
        self.whole_only = False  # somebody wants to see every step whole
        self.whole = True
        self.start_over()

    def start_over(self) -> None:
        self.owner = threading.main_thread().ident  # the thread that trains; 0 where nobody is listened to any more
        self.in_backward = False
        self.dynamo = False  # whether torch.compile has been at work: only then it may be tracing a hook
        self.ticks = 0  # optimizer steps taken, of whatever optimizer
        self.unstepped = 0  # batches that came since
        self.iterator = 0  # the identity of the one that gave the last …
        self.source: Any = None  # … and a weak reference to it
        self.glancing = False  # most steps are seen at their ends alone
        if self.glances is not None:
            self.glances.forget()
        self.sampling = False  # whether this step is looked at closely
        self.due = 0
        self.needs_steps = False  # backward passes alone do not make it a training that is told of
        self.lines: list[tuple[Any, ...]] = []
        self.note = self.lines.append

    @property
    def off(self) -> bool:
        return not self.owner

    def stop(self) -> None:
        self.something_new()
        self.owner = 0

    def inside(self, kind: Call, nanoseconds: int) -> None:
        """Something that happens inside a phase, as often as the script likes."""
        if self.glancing:
            self.glances.drain()
        self.note((kind, nanoseconds))
        if len(self.lines) > MOST_LINES:
            self.tell()

    def meet(self, optimizer: Any) -> None:
        """An optimizer is about to step for the first time."""
        self.look_for_device()
        if self.look is not None:
            self.look.stepped(optimizer)
        if self.met is not None:
            self.met()
        if self.driver is not None:
            self.driver.met(optimizer)

    def something_new(self, now: int = 0) -> None:
        """Not the plain loop that it was, since `now`."""
        if self.glancing:
            self.glances.end(now)

    def no_more_glances(self) -> None:
        self.something_new()
        self.glances = None

    def batch_again(self) -> None:
        """A further batch, and no step since the last."""
        self.something_new()
        if len(self.lines) > MOST_LINES:
            self.tell()

    def tick(self, now: int) -> None:
        """An optimizer has stepped."""
        self.ticks = ticks = self.ticks + 1
        if self.inputs is not None:
            self.inputs.stepped(self.unstepped)
        self.unstepped = 0
        self.sampling = not ticks & (EARLY if ticks < EARLY_TICKS else LATE)
        if self.glancing:
            self.sampling = False
            self.glances.turn(whole=False)
        if now >= self.due:
            self.read(now)
        if self.driver is not None:
            self.driver.stepped(now)

    def tick_after_glances(self, now: int) -> None:
        """Some steps were only glanced at: the next one is looked at closely."""
        self.glances.turn(whole=True)
        self.sampling = True
        if now >= self.due:
            self.read(now)

    def read(self, now: int) -> None:
        """Tell the clock, and then whoever waits for a new state of it."""
        self.tell()
        if self.needs_steps and not self.ticks:
            return
        # Rarer as the run goes on, so that a week of training leaves some thousand lines in its journal.
        self.due = now + max(SECOND, (now - self.clock.began) // 500)
        began = perf_counter_ns()
        for call in self.after_reading:
            call(now)
        self.note((self.clock.worked, perf_counter_ns() - began))

    def tell(self) -> None:
        if self.glances is not None:
            self.glances.drain()
        lines, self.lines = self.lines, []
        self.note = self.lines.append
        try:
            for line in lines:
                line[0](*line[1:])
        except Exception as error:
            fault("clock", error)

    def main_ended(self) -> int:
        """The script's last line is done: nothing after it is training. When that was."""
        self.something_new()
        now = perf_counter_ns()
        self.note((self.clock.main_ended, now))
        self.tell()
        return now

    def finish(self) -> None:
        self.something_new()
        self.tell()
        self.clock.finish(perf_counter_ns())
        self.stop()
