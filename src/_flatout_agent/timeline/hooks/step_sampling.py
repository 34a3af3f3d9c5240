"""Where the host holds up a plain loop, most steps are only glanced at.

A hook costs several microseconds in a real loop, however little it does: by the time it runs again the processor has
forgotten it. So where the observers on tensors rest, and each step was one batch, one backward pass and one optimizer's
step, three of the four hooks are lifted: steps are counted without a line of Python, and of each batch it is noted when it
was asked for and came. How the rest of a step divides into forward, backward and optimizer is taken from the steps that
were seen whole: the second before. Every other second the hooks are back for a step, for the loss and all else that is
looked at now and then. Another loader, a checkpoint or a compilation ends it at once; steps that are left out or come
twice end it within the row, and are counted.
"""

from __future__ import annotations

from operator import sub
from time import perf_counter_ns
from typing import Any

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.patches import dress, leave_us_out
from _flatout_agent.timeline.event_buffer import Tape
from _flatout_agent.timeline.hooks.optimizer_steps import Steps
from _flatout_agent.timeline.hooks.sampled_step_rows import Batches, Ends, equal_sizes
from _flatout_agent.timeline.phase_totals import DIVIDED
from _flatout_agent.timeline.samples_in_batch import size_of

LOOK = 1_000_000_000  # of steps seen whole before
FEWEST_STEPS = 16
MOST_GLANCES, LEAST_GLANCES = 511, 3  # in a row
MOST_TIME = 2_000_000_000  # in a row: the journal is written between them


class Glances:
    """Asked at every reading of the tape; told by the tape when a step ended, and when something is new."""

    def __init__(self, torch: Any, tape: Tape, steps: Steps, iterator_class: Any) -> None:
        self._torch = torch
        self._tape = tape
        self.steps = steps
        self._class = iterator_class
        self._row: Any = None  # a Batches or Ends
        self._glances: tuple[Any, Any] = (None, None)
        self._whole_next: Any = None
        self._since = 0
        self._counts: tuple[int, ...] = (0, 0, 0, 0)
        self._phases: tuple[int, ...] = (0,) * len(DIVIDED)

    # -- when ------------------------------------------------------------------------------------------------------

    def begin_look(self, now: int) -> None:
        """All is seen whole, from here on."""
        self.end()
        self._since = now
        self._counts, self._phases = self._counted(), self._divided()

    def consider(self, now: int) -> None:
        """The observers on tensors rest."""
        tape = self._tape
        if tape.glancing:
            return
        if not self._since:
            self.begin_look(now)
        steps, *_, batches = map(sub, self._counted(), self._counts)
        if steps < FEWEST_STEPS or now - self._since < LOOK:
            return
        if self.is_plain():
            row = max(LEAST_GLANCES, min(MOST_GLANCES, MOST_TIME * steps // (now - self._since)))
            self._whole_next = vars(self._class)["__next__"]
            self._glances = self._of_batches(row) if batches else self._of_ends(row)
            tape.glancing = True  # from the end of a step on, not in the middle
        else:
            self.begin_look(now)

    def is_plain(self) -> bool:
        """Since the look began: one of each a step."""
        steps, *parts = map(sub, self._counted(), self._counts)
        # The reading may be in the middle of a step. A loop without a loader has no batches.
        same = all(abs(count - steps) <= 1 for count in (parts if parts[-1] else parts[:-1]))
        return same and bool(self.steps.only) and not self._wanted_whole()

    def learn(self) -> None:
        """How steps divide, from those since the look began, while the observers on tensors told of copies and waiting."""
        self._tape.clock.split = tuple(map(sub, self._divided(), self._phases))

    def _wanted_whole(self) -> bool:
        tape = self._tape
        # Compiled code guards on the number of hooks. Those that drive the loop know its steps by their parts.
        return tape.dynamo or tape.whole_only or tape.driver is not None or tape.every_loss is not None

    def _counted(self) -> tuple[int, ...]:
        clock = self._tape.clock
        return clock.steps, clock.backwards, self._tape.ticks, clock.batches

    def _divided(self) -> tuple[int, ...]:
        totals = self._tape.clock.totals
        return tuple(totals[phase] for phase in DIVIDED)

    # -- what is seen ----------------------------------------------------------------------------------------------

    def _of_batches(self, most: int) -> tuple[Any, Any]:
        tape, whole_next, original = self._tape, self._whole_next, self._whole_next.__wrapped__
        iterator, sizes = tape.iterator, equal_sizes(self._torch, tape.source)
        row = self._row = Batches(tape, self.steps.number_of(self.steps.only), iterator, sizes)
        log, note, size = row.log, row.log.append, sizes.size if sizes is not None else 0

        def __next__(self_: Any) -> Any:
            if id(self_) != iterator or len(log) >= most:
                if id(self_) == iterator:
                    self._row_is_full()
                try:
                    return whole_next(self_)
                except BaseException as error:
                    leave_us_out(error)
                    raise
            began = perf_counter_ns()
            try:
                batch = original(self_)
            except BaseException as error:
                leave_us_out(error)
                self._next_raised(self_, began)
                raise
            try:
                note((began, perf_counter_ns(), size or size_of(batch)))
            except Exception as error:
                self._next_not_noted(error, began, id(self_))
            return batch

        return dress(__next__, original), row.on_step

    def _of_ends(self, most: int) -> tuple[Any, Any]:
        tape, whole_step, optimizer = self._tape, self.steps.ended, self.steps.only
        row = self._row = Ends(tape, self.steps.number_of(optimizer))
        log, note = row.log, row.log.append

        def step_ended(stepping: Any, args: Any, kwargs: Any) -> None:
            try:
                if id(stepping) != optimizer:
                    self.end()
                    whole_step(stepping, args, kwargs)
                    return
                note(perf_counter_ns())
                if len(log) > most:
                    self.drain()
                    tape.tick_after_glances(perf_counter_ns())
            except Exception as error:
                fault("glances.ended", error)

        return self._whole_next, step_ended

    def _row_is_full(self) -> None:
        try:
            now = perf_counter_ns()
            plain = self._row.drain(now)
            self._tape.tick_after_glances(now)
            if not plain:
                self.end(now)
        except Exception as error:
            fault("glances.full", error)
            self._give_up()

    def _give_up(self) -> None:
        try:
            self._tape.glancing = False
            self._put_back()
        except Exception as error:
            fault("glances.give_up", error)

    def _next_raised(self, iterator: Any, began: int) -> None:
        """The loader's end or its fault, which the script is to see."""
        try:
            self._row.drain(began)
            self.end(began)
            self._tape.note((self._tape.clock.exhausted, began, perf_counter_ns(), id(iterator)))
        except Exception as own:
            fault("glances.next", own)

    def _next_not_noted(self, error: Exception, began: int, iterator: int) -> None:
        """A fault of ours: the batch counts, but not its samples."""
        fault("glances.size", error)
        try:
            self._row.drain(began)
            self.end(began)
            self._tape.note((self._tape.clock.fetched, began, perf_counter_ns(), 0, iterator))
        except Exception as own:
            fault("glances.next", own)

    def drain(self) -> None:
        """What was glanced at goes on the tape."""
        if not self._tape.whole and not self._row.drain():
            self.end()

    # -- on and off ------------------------------------------------------------------------------------------------

    def turn(self, whole: bool) -> None:
        """Between two steps: the next one is to be seen whole, or glanced at."""
        if whole or self._wanted_whole() or vars(self._class).get("__next__") is not self._whole_next:
            self._tape.glancing = self._tape.glancing and not self._wanted_whole()
            self._put_back()
            return
        glance_next, on_step = self._glances
        self._row.begin()
        self._class.__next__ = glance_next
        self.steps.glance(on_step)
        self._tape.whole = False

    def end(self, now: int = 0) -> None:
        """Not the plain loop any more, since `now`."""
        self._tape.glancing = False
        self._since = 0
        if not self._tape.whole:
            self._put_back()
            self._row.drain()
            self._row.close(now or perf_counter_ns())

    def forget(self) -> None:
        """In a forked child: what was glanced at is the parent's."""
        if self._row is not None:
            self._row.begin()
        self.end()

    def _put_back(self) -> None:
        if vars(self._class).get("__next__") is self._glances[0]:
            self._class.__next__ = self._whole_next
        if self._tape.owner:
            self.steps.put_back()
        self._tape.whole = True
