"""Waiting for data: the data loader's iterators."""

from __future__ import annotations

import os
from threading import get_ident
from time import perf_counter_ns
from typing import Any
from weakref import ref

from _flatout_agent.batch import size_of
from _flatout_agent.clock import StepClock
from _flatout_agent.guard import fault
from _flatout_agent.identities import Identities
from _flatout_agent.loaders import calling_line
from _flatout_agent.patch import Patches, dress


def watch(torch: Any, clock: StepClock, patches: Patches) -> None:
    from torch.utils.data import dataloader

    # The iterator's base class, not `DataLoader.__iter__`'s result: identity, persistent workers and subclasses stay.
    iterator = dataloader._BaseDataLoaderIter
    source = _source_of(Identities())
    patches.put(iterator, "__next__", _timed_next(iterator.__next__, clock, source))
    patches.put(dataloader.DataLoader, "__iter__", _timed_iter(dataloader.DataLoader.__iter__, clock, source))
    folder = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
    patches.put(dataloader.DataLoader, "__init__", _noted_init(dataloader.DataLoader.__init__, clock, folder))


def _timed_next(original: Any, clock: StepClock, source: Any) -> Any:
    def __next__(self: Any) -> Any:
        if clock.off or get_ident() != clock.owner:
            if not clock.off:
                clock.foreign_batches += 1
            return original(self)
        began = perf_counter_ns()
        try:
            batch = original(self)
        except BaseException:
            ended = perf_counter_ns()
            try:
                clock.exhausted(began, ended, source(self))
            except Exception as error:
                fault("loader.exhausted", error)
            raise
        ended = perf_counter_ns()
        try:
            clock.fetched(began, ended, size_of(batch), clock.loaders.use_of(self), source(self))
        except Exception as error:
            fault("loader.next", error)
        return batch

    return dress(__next__, original)


def _timed_iter(original: Any, clock: StepClock, source: Any) -> Any:
    def __iter__(self: Any) -> Any:
        if clock.off or get_ident() != clock.owner:
            return original(self)
        began = perf_counter_ns()
        iterator = original(self)
        ended = perf_counter_ns()
        try:
            clock.loader_started(began, ended, source(iterator), ref(iterator))
            clock.loaders.started(self, iterator)
        except Exception as error:
            fault("loader.started", error)
        return iterator

    return dress(__iter__, original)


def _noted_init(original: Any, clock: StepClock, torch_folder: str) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if not clock.off:
            try:
                clock.loaders.made(self, calling_line(torch_folder))
            except Exception as error:
                fault("loader.made", error)

    return dress(__init__, original)


def _source_of(identities: Identities) -> Any:
    """The number of an iterator's dataset: it stays from epoch to epoch, and tells training from validation."""

    def source(iterator: Any) -> int:
        return identities.of(getattr(iterator, "_dataset", iterator))

    return source
