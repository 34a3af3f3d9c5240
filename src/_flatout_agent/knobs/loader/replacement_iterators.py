"""Iterators with other settings than their loader's, fed by a sampler that is half-way through its epoch."""

from __future__ import annotations

import atexit
import os
from collections import deque
from typing import Any, Iterator, NamedTuple
from weakref import WeakSet

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.knobs.loader.reuse.inside_worker import Begin, Birth, Collating, will_be_born
from _flatout_agent.knobs.loader.shared_memory_transport import carrying
from _flatout_agent.knobs.loader.worker_limits import start_method


class Settings(NamedTuple):
    """How a loader fetches; what it fetches is not ours to change."""

    workers: int
    persistent: bool
    prefetch: int
    pin: bool

    def sensible(self) -> Settings:
        """Without workers there is nothing to keep alive and nothing to run ahead."""
        return self if self.workers else self._replace(persistent=False, prefetch=0)


def settings_of(loader: Any) -> Settings:
    return Settings(
        loader.num_workers, bool(loader.persistent_workers), loader.prefetch_factor or 2, bool(loader.pin_memory)
    ).sensible()


class LiveSampler:
    """The script's own sampler, where it stands, and the indices that were taken and not yet delivered as a batch."""

    def __init__(self, rest: Iterator[Any]) -> None:
        self._rest = rest
        self._dry = False
        self.pending: deque[Any] = deque()

    def __iter__(self) -> LiveSampler:
        return self

    def __next__(self) -> Any:
        if self._dry:
            raise StopIteration
        indices = next(self._rest)
        self.pending.append(indices)
        return indices

    def close(self) -> None:
        """No more to this iterator: what it holds is drained, the rest goes to another."""
        self._dry = True

    def rest(self) -> Iterator[Any]:
        """All that was not delivered, those taken already first."""
        while self.pending:
            yield self.pending.popleft()
        yield from self._rest


class StandIn:
    """What torch's iterators ask of a loader, with other settings. Its generator is its own: none of the script's draws."""

    def __init__(self, torch: Any, loader: Any, settings: Settings, sampler: Any) -> None:
        self.dataset = loader.dataset
        self.drop_last = loader.drop_last
        self.timeout = loader.timeout if settings.workers else 0
        self.collate_fn = loader.collate_fn
        self.worker_init_fn = loader.worker_init_fn
        self.multiprocessing_context = loader.multiprocessing_context
        self.pin_memory_device = getattr(loader, "pin_memory_device", "")
        self.in_order = getattr(loader, "in_order", True)
        self._dataset_kind = loader._dataset_kind
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._auto_collation = loader._auto_collation
        self._index_sampler = sampler
        self.num_workers = settings.workers
        self.persistent_workers = settings.persistent
        self.prefetch_factor = settings.prefetch or None
        self.pin_memory = settings.pin
        self.generator = torch.Generator()


def build(torch: Any, loader: Any, settings: Settings, sampler: LiveSampler, seed: int, birth: Birth | None = None) -> Any:
    """An iterator of torch's own kind. It takes indices only once all its workers have started. `birth`: what these know of
    themselves, if they may outlive an epoch."""
    from torch.utils.data import dataloader
    from torch.utils.data._utils import signal_handling

    stand_in = StandIn(torch, loader, settings, sampler)
    if not settings.workers:
        return dataloader._SingleProcessDataLoaderIter(stand_in)

    class SeededIterator(dataloader._MultiProcessingDataLoaderIter):  # type: ignore[misc]
        """Workers draw from the seed they are given, not from one that is drawn for them."""

        _base_seed = property(lambda self: seed, lambda self, drawn: None)

    SeededIterator.__name__ = SeededIterator.__qualname__ = dataloader._MultiProcessingDataLoaderIter.__name__
    if birth is not None and birth.checksum is not None:
        stand_in.collate_fn = Collating(stand_in.collate_fn)
        will_be_born(birth)
    try:
        iterator = carrying(torch, stand_in, lambda: SeededIterator(stand_in), start_method(loader))
    finally:
        will_be_born(None)
    iterator._collate_fn = loader.collate_fn  # the workers have ours by now
    # Torch's signal handler raises wherever the main thread is when a worker dies. Of ours it must not know: `next` finds
    # out within seconds, and there the script can be spared.
    signal_handling._remove_worker_pids(id(iterator))
    iterator._worker_pids_set = False
    _end_at_exit(iterator)
    return iterator


_alive: WeakSet[Any] = WeakSet()
_owner = 0  # of the workers


def _end_at_exit(iterator: Any) -> None:
    """Where batches are pinned, torch waits at its exit five seconds for each worker that was told to stay: ours go before."""
    global _owner
    _owner = os.getpid()
    _alive.add(iterator)
    atexit.unregister(_end_all)
    atexit.register(_end_all)  # after torch's own for this iterator, so that it runs before it


def _end_all() -> None:
    if os.getpid() != _owner:
        return  # a forked child that ends by itself: the workers are its parent's
    for iterator in list(_alive):
        try:
            iterator._shutdown_workers()
        except Exception as error:
            fault("stand_in.end", error)


def restart(torch: Any, loader: Any, iterator: Any, settings: Settings, sampler: LiveSampler, seed: int | None = None) -> None:
    """A new epoch for workers that are alive; with a seed they begin it as fresh ones would."""
    iterator._dataset, iterator._collate_fn = loader.dataset, loader.collate_fn
    iterator._worker_init_fn = loader.worker_init_fn
    iterator._index_sampler = sampler
    iterator._shared_seed = None if seed is None else Begin(seed)
    try:
        iterator._reset(StandIn(torch, loader, settings, sampler))
    finally:
        iterator._shared_seed = None


def shell(loader: Any) -> Any:
    """What the script holds in place of an iterator that would have started the script's own workers.

    The sampler is asked to begin, and the seed is drawn, as often as the script's own settings would have it.
    """
    from torch.utils.data import dataloader

    class Shell(dataloader._BaseDataLoaderIter):  # type: ignore[misc]
        def __init__(self, loader: Any) -> None:
            kept = loader._iterator if loader.persistent_workers else None
            if kept is None:
                super().__init__(loader)
            else:
                self.__dict__.update({name: vars(kept)[name] for name in _BASE_NAMES if name in vars(kept)})
                self._num_yielded = 0
            self._sampler_iter = iter(self._index_sampler)
            self._fetcher: Any = None

        def _next_data(self) -> Any:  # where all else has failed
            if self._fetcher is None:
                self._fetcher = dataloader._DatasetKind.create_fetcher(
                    self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last
                )
            return self._fetcher.fetch(self._next_index())

    Shell.__name__ = Shell.__qualname__ = dataloader._MultiProcessingDataLoaderIter.__name__
    return Shell(loader)


_BASE_NAMES = (
    "_dataset",
    "_shared_seed",
    "_pg",
    "_dataset_kind",
    "_IterableDataset_len_called",
    "_auto_collation",
    "_drop_last",
    "_index_sampler",
    "_num_workers",
    "_world_size",
    "_rank",
    "_pin_memory",
    "_pin_memory_device",
    "_timeout",
    "_collate_fn",
    "_base_seed",
    "_persistent_workers",
    "_profile_name",
)
