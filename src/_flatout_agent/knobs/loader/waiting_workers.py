"""Workers that wait for their settings to come back.

Trials change to and fro in the middle of an epoch, and starting processes takes longer than a segment. From one epoch to the
next they wait only where that turn is not timed: where it is, workers are started as ever, and what that costs counts.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.knobs.loader.fetch_randomness import plain_values
from _flatout_agent.knobs.loader.replacement_iterators import Settings

MOST = 3
MOST_WORKERS = 64


class Parked:
    """Iterators with nothing in flight, by loader and settings, the latest last."""

    def __init__(self) -> None:
        self.open = False
        self.over_turns = False  # of epochs
        self._idle: dict[tuple[int, Settings], tuple[Any, Any, Any]] = {}

    def put(self, loader: Any, settings: Settings, iterator: Any) -> bool:
        if not self.open or not settings.workers or iterator._shutdown or settings.workers > MOST_WORKERS:
            return False
        key = (id(loader), settings)
        self._end(key)
        self._idle[key] = (ref(loader), plain_values(loader.dataset), iterator)
        while len(self._idle) > MOST or sum(workers.workers for _, workers in self._idle) > MOST_WORKERS:
            self._end(next(iter(self._idle)))
        return True

    def take(self, loader: Any, settings: Settings) -> Any:
        """An iterator whose workers know the dataset as it is now, or None."""
        if not self.open:
            return None
        reference, values, iterator = self._idle.pop((id(loader), settings), (None, None, None))
        if iterator is None:
            return None
        alive = all(worker.is_alive() for worker in iterator._workers)
        if reference() is loader and alive and values == plain_values(loader.dataset):
            return iterator
        _close(iterator)
        return None

    def close(self) -> None:
        """Nothing that waits is wanted any more."""
        for key in list(self._idle):
            self._end(key)

    def _end(self, key: tuple[int, Settings]) -> None:
        found = self._idle.pop(key, None)
        if found is not None:
            _close(found[2])


def _close(iterator: Any) -> None:
    try:
        iterator._shutdown_workers()
    except Exception as error:
        fault("parked.close", error)
