"""Where the host holds up a plain loop, most steps are only glanced at.

A hook costs several microseconds in a real loop, however little it does: by the time it runs again the processor has
forgotten it. So where the observers on tensors rest, and each step was one batch, one backward pass and one optimizer's
step, two of the four hooks are lifted and the other two replaced by the least that keeps the account: when a batch was asked
for and came, its size, when a step ended. How the rest of a step divides into forward, backward and optimizer is taken
from the steps that were seen whole: the second before. About once a second the hooks are back for a step, for the loss and
all else that is looked at now and then. Anything that does not belong to the plain loop ends it at once.
"""

from __future__ import annotations

from operator import sub
from time import perf_counter_ns
from typing import Any

from _flatout_agent.batch import size_of
from _flatout_agent.clock import DIVIDED
from _flatout_agent.guard import fault
from _flatout_agent.observe.steps import Steps
from _flatout_agent.patch import dress
from _flatout_agent.tape import Tape

LOOK = 1_000_000_000  # of steps seen whole before
FEWEST_STEPS = 16
MOST_GLANCES, LEAST_GLANCES = 255, 3  # in a row
MOST_TIME = 1_000_000_000  # in a row: the journal is written between them

NONE = object()  # a script's batch may be None


def is_row(log: list[Any]) -> bool:
    """A batch and the end of a step, in turn."""
    ends = log[1::2]
    return len(log) == 2 * len(ends) and set(map(type, ends)) == {int} and set(map(type, log[::2])) == {tuple}


class Glances:
    """Asked at every reading of the tape; told by the tape when a step ended, and when something is new."""

    def __init__(self, tape: Tape, steps: Steps, iterator_class: Any) -> None:
        self._tape = tape
        self.steps = steps
        self._class = iterator_class
        self._log: list[Any] = []  # in turn: (asked, came, size) of a batch, the end of a step
        self._glances: tuple[Any, Any] = (None, None)
        self._whole_next: Any = None
        self._ids = (0, 0)
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
            self._make_glances(row * (2 if batches else 1))
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

    def _make_glances(self, most: int) -> None:
        self._whole_next = whole_next = vars(self._class)["__next__"]
        original, whole_step = whole_next.__wrapped__, self.steps.ended
        iterator, optimizer = self._ids = (self._tape.iterator, self.steps.only)
        tape, log, note = self._tape, self._log, self._log.append

        def __next__(self_: Any) -> Any:
            if id(self_) != iterator:
                return whole_next(self_)
            batch, began = NONE, perf_counter_ns()
            try:
                batch = original(self_)
                note((began, perf_counter_ns(), batch[0].shape[0] if type(batch) is list else size_of(batch)))
            except BaseException as error:
                return self._next_raised(error, self_, began, batch)
            return batch

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

        self._glances = (dress(__next__, original), step_ended)

    def _next_raised(self, error: BaseException, iterator: Any, began: int, batch: Any) -> Any:
        """The loader's end or its fault, which the script is to see; or a batch of a kind that has no shape."""
        try:
            self.end()
            if batch is NONE:
                self._tape.note((self._tape.clock.exhausted, began, perf_counter_ns(), id(iterator)))
            else:
                self._tape.note((self._tape.clock.fetched, began, perf_counter_ns(), size_of(batch), id(iterator)))
        except Exception as own:
            fault("glances.next", own)
        if batch is NONE:
            raise error
        return batch

    def drain(self) -> None:
        """What was glanced at goes on the tape, as far as it is the plain loop."""
        if not self._log:
            return
        log, self._log[:] = list(self._log), []
        tape, (iterator, optimizer) = self._tape, self._ids
        fetched, glanced, number = tape.clock.fetched, tape.clock.glanced, self.steps.number_of(optimizer)
        in_hand, plain = tape.unstepped, True
        if iterator and not in_hand and is_row(log):
            tape.note((tape.clock.glanced_row, log, number, iterator))
            tape.ticks += len(log) // 2
            return
        for entry in log:
            if type(entry) is int:
                plain = plain and bool(in_hand or not iterator)
                tape.note((glanced, entry, number))
                tape.ticks += 1
                in_hand = 0
            else:
                if in_hand:  # no step since the last batch
                    tape.note((tape.clock.glanced_backward, entry[0]))
                    plain = False
                tape.note((fetched, *entry, iterator))
                in_hand += 1
        tape.unstepped = in_hand
        if not plain:
            self.end()

    # -- on and off ------------------------------------------------------------------------------------------------

    def turn(self, whole: bool) -> None:
        """Between two steps: the next one is to be seen whole, or glanced at."""
        if whole or self._wanted_whole() or vars(self._class).get("__next__") is not self._whole_next:
            self._tape.glancing = self._tape.glancing and not self._wanted_whole()
            self._put_back()
            return
        glance_next, glance_ended = self._glances
        self._class.__next__ = glance_next
        self.steps.glance(glance_ended)
        self._tape.whole = False

    def end(self) -> None:
        self._tape.glancing = False
        self._since = 0
        if not self._tape.whole:
            self._put_back()
            self.drain()

    def forget(self) -> None:
        """In a forked child: what was glanced at is the parent's."""
        self._log.clear()
        self.end()

    def _put_back(self) -> None:
        if vars(self._class).get("__next__") is self._glances[0]:
            self._class.__next__ = self._whole_next
        if self._tape.owner:
            self.steps.put_back()
        self._tape.whole = True
