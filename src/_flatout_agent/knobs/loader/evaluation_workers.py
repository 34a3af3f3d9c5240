"""Loaders that are only evaluated from get workers as well, where that is known to be exact.

A loader without workers gets them from its second epoch on: in its first, fetching was seen to draw nothing and to change
nothing, and no step was taken. A loader with workers of its own has as many of ours, which live over the turn of the epoch.
"""

from __future__ import annotations

from typing import Any, Callable
from weakref import WeakKeyDictionary

from _flatout_agent.knobs.loader.fetch_randomness import Fetching
from _flatout_agent.knobs.loader.loader_control import Control
from _flatout_agent.knobs.loader.worker_limits import most_workers, obstacle, worker_obstacle

SHARE = 2  # of so many workers of the training, one here


class Seen:
    """Of one loader: the steps that were taken as its last epoch began, and whether any came before that ended."""

    def __init__(self, steps: int) -> None:
        self.began = steps
        self.trained = False


class Evaluations:
    """Of all loaders that are not trained from; asked while the workers' knob is on."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._seen: WeakKeyDictionary[Any, Seen] = WeakKeyDictionary()
        self._workers = 0
        self._steps: Callable[[], int] = lambda: 0
        self._trained_from: Callable[[Any], bool] = lambda loader: True
        self.controls: list[Control] = []

    @property
    def on(self) -> bool:
        return self._workers > 0

    def begin(self, workers: int, steps: Callable[[], int], trained_from: Callable[[Any], bool]) -> None:
        """The loaders that are trained from have so many workers of ours."""
        self._workers = max(1, workers // SHARE)
        self._steps, self._trained_from = steps, trained_from

    def end(self) -> list[Any]:
        """The loaders of which nothing is wanted any more."""
        self._workers = 0
        controls, self.controls = self.controls, []
        for control in controls:
            control.wanted.pop("workers", None)
        return [loader for loader in (control.loader() for control in controls) if loader is not None]

    def wanted(self, loader: Any, fetching: Fetching | None) -> int | None:
        """Workers for this loader as an epoch of it begins; None: it is left alone, and seen."""
        if self._trained_from(loader) or loader.persistent_workers:
            return None
        seen = self._seen.get(loader)
        if seen is None:
            self._seen[loader] = Seen(self._steps())
            return None
        seen.began = self._steps()
        if seen.trained or obstacle(self._torch, loader) or worker_obstacle(self._torch, loader):
            return None
        if loader.num_workers:
            return int(loader.num_workers)
        if fetching is None or not fetching.is_pure():
            return None
        most, _ = most_workers(loader, 2, fetching.batch_bytes, fetching.batch_tensors)
        return min(self._workers, most) or None

    def fetched(self, sampler: Any) -> None:
        """A batch of a loader that is seen."""
        for loader, seen in list(self._seen.items()):
            if loader._index_sampler is sampler and self._steps() > seen.began:
                seen.trained = True

    def told(self) -> dict[str, Any]:
        served = [control for control in self.controls if control.delivered]
        if not served:
            return {}
        return {"evaluation_loaders": len(served), "evaluation_workers": max(control.last.workers for control in served)}
