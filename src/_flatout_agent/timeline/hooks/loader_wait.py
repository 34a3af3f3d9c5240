"""Waiting for data: the data loader's iterators."""

from __future__ import annotations

import os
from threading import get_ident
from time import perf_counter_ns
from typing import Any
from weakref import ref

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.object_numbers import Identities
from _flatout_agent.core.patches import Patches, dress, leave_us_out
from _flatout_agent.core.script_workers_at_exit import end_before_torch_waits
from _flatout_agent.timeline.event_buffer import Tape
from _flatout_agent.timeline.samples_in_batch import size_of
from _flatout_agent.timeline.script_loaders import MOST_LOADERS, calling_line

MOST_ELSEWHERE = 8
USES = MOST_LOADERS + 1


def watch(torch: Any, tape: Tape, patches: Patches) -> None:
    from torch.utils.data import dataloader

    # The iterator's base class, not `DataLoader.__iter__`'s result: identity, persistent workers and subclasses stay.
    iterator = dataloader._BaseDataLoaderIter
    iterators = Iterators(tape)
    tape.moved = iterators.catch_up
    patches.put(iterator, "__next__", _timed_next(iterator.__next__, tape, iterators))
    patches.put(dataloader.DataLoader, "__iter__", _timed_iter(dataloader.DataLoader.__iter__, tape, iterators))
    folder = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
    patches.put(dataloader.DataLoader, "__init__", _noted_init(dataloader.DataLoader.__init__, tape, folder))


class Iterators:
    """Tells the clock what an iterator is, once; its batches come under its identity alone."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._datasets = Identities()
        self.known: dict[int, Any] = {}  # identity -> weak reference
        self._elsewhere: list[tuple[int, Any, Any]] = []  # thread, loader and iterator, while nobody knows who trains

    def started(self, loader: Any, iterator: Any, began: int, ended: int) -> None:
        tape, identity = self._tape, id(iterator)
        dataset = getattr(iterator, "_dataset", iterator)  # it stays from epoch to epoch: training or validation

        def let_go(reference: Any) -> None:
            try:
                if self.known.get(identity) is reference:
                    del self.known[identity]
                    if tape.iterator == identity:
                        tape.something_new()
                        tape.iterator = 0
                    tape.note((tape.clock.let_go, identity))
            except Exception as error:  # Python would print it between the script's lines
                fault("loader.let_go", error)

        self.known[identity] = ref(iterator, let_go)
        tape.something_new(began)
        tape.look_for_device()
        use = tape.clock.loaders.started(loader)
        # Training and validation may draw from one dataset, each with a loader of its own.
        source = self._datasets.of(dataset) * USES + (use.number if use is not None else 0)
        if tape.driver is not None:
            tape.driver.iterator_began(loader, identity, use, source)
        tape.note((tape.clock.loader_started, began, ended, source, identity, use))

    def began_elsewhere(self, loader: Any, iterator: Any) -> None:
        """In a thread that may turn out to be the one that trains."""
        if not self._tape.ticks and not self._tape.off:
            self._elsewhere = [*self._elsewhere[1 - MOST_ELSEWHERE :], (get_ident(), ref(loader), ref(iterator))]

    def catch_up(self) -> None:
        """It does train: its loaders were not heard of."""
        elsewhere, self._elsewhere = self._elsewhere, []
        now = perf_counter_ns()
        for thread, loader, iterator in elsewhere:
            if thread == self._tape.owner and iterator() is not None and loader() is not None:
                self.started(loader(), iterator(), now, now)

    def turned_to(self, iterator: Any, began: int) -> None:
        """The last batch came from another one."""
        if id(iterator) not in self.known:
            self.started(None, iterator, began, began)  # it was made before us, or not by a loader
        self._tape.something_new(began)
        self._tape.iterator, self._tape.source = id(iterator), self.known.get(id(iterator))

    def over(self, iterator: Any, began: int) -> None:
        """No further batch, or the script's own fault."""
        try:
            if get_ident() == self._tape.owner:
                self._tape.note((self._tape.clock.exhausted, began, perf_counter_ns(), id(iterator)))
        except Exception as error:
            fault("loader.exhausted", error)


def _timed_next(original: Any, tape: Tape, iterators: Iterators) -> Any:
    fetched = tape.clock.fetched

    def __next__(self: Any) -> Any:
        began, watched = perf_counter_ns(), get_ident() == tape.owner
        try:
            batch = original(self) if tape.feed is None or not watched else tape.feed(self, original)
        except BaseException as error:
            leave_us_out(error)
            iterators.over(self, began)
            raise
        try:
            if not watched:
                tape.clock.foreign_batches += bool(tape.owner)
                return batch
            ended = perf_counter_ns()
            if id(self) != tape.iterator:
                iterators.turned_to(self, began)
            size = size_of(batch)
            tape.unstepped = unstepped = tape.unstepped + 1
            if unstepped > 1:
                tape.batch_again()
            tape.note((fetched, began, ended, size, id(self)))
            if tape.sampling and tape.look is not None:
                tape.look.count_tokens(batch, size)
        except Exception as error:
            fault("loader.next", error)
        return batch

    return dress(__next__, original)


def _timed_iter(original: Any, tape: Tape, iterators: Iterators) -> Any:
    def __iter__(self: Any) -> Any:
        began, watched = perf_counter_ns(), get_ident() == tape.owner
        try:
            iterator = original(self) if tape.epochs is None or not watched else tape.epochs(self, original)
        except BaseException as error:
            leave_us_out(error)
            raise
        try:
            end_before_torch_waits(iterator)
            if watched:
                iterators.started(self, iterator, began, perf_counter_ns())
            else:
                iterators.began_elsewhere(self, iterator)
        except Exception as error:
            fault("loader.started", error)
        return iterator

    return dress(__iter__, original)


def _noted_init(original: Any, tape: Tape, torch_folder: str) -> Any:
    def __init__(*args: Any, **kwargs: Any) -> None:
        try:
            original(*args, **kwargs)
        except BaseException as error:
            leave_us_out(error)
            raise
        if tape.owner:
            try:
                tape.clock.loaders.made(args[0] if args else kwargs["self"], calling_line(torch_folder))
            except Exception as error:
                fault("loader.made", error)

    return dress(__init__, original)
