"""Loaders that are only evaluated from get workers as well, where that is known to be exact.

A loader without workers gets them from its second epoch on: in its first, fetching was seen to draw nothing and to change
nothing, and no step was taken. A loader with workers of its own has as many of ours, which live over the turn of the epoch;
where two epochs began with the very same batches, its samples do not depend on chance, and it may have more.
"""

from __future__ import annotations

from typing import Any, Callable
from weakref import WeakKeyDictionary
from zlib import crc32

from _flatout_agent.knobs.loader.fetch_randomness import Fetching
from _flatout_agent.knobs.loader.loader_control import Control
from _flatout_agent.knobs.loader.worker_limits import most_workers, obstacle, worker_obstacle
from _flatout_agent.knobs.nested_tensors import tensors_in

SHARE = 2  # of so many workers of the training, one here
COMPARED = 3  # batches at the beginning of an epoch
LOOKED_AT = 1024  # values of each sample


class Seen:
    """Of one loader: the steps that were taken as its last epoch began, and whether any came before that ended."""

    def __init__(self, steps: int) -> None:
        self.began = steps
        self.trained = False
        self.batches: list[int | None] = []  # of the epoch before: what its first ones held
        self.now: list[int | None] = []  # the same of this one
        self.same = False  # two epochs began with the same batches

    def begins(self, steps: int) -> None:
        self.began = steps
        if len(self.now) == COMPARED:
            self.same = self.same or (self.now == self.batches and None not in self.now)
            self.batches = self.now
        self.now = []


class Evaluations:
    """Of all loaders that are not trained from; asked while the workers' knob is on."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._seen: WeakKeyDictionary[Any, Seen] = WeakKeyDictionary()
        self._workers = 0
        self._steps: Callable[[], int] = lambda: 0
        self._trained_from: Callable[[Any], bool] = lambda loader: True
        self.controls: list[Control] = []
        self.comparing = False  # some loader's batches are still to be looked at

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
        if self._trained_from(loader):
            return None
        seen = self._seen.get(loader)
        if seen is None:
            self._seen[loader] = Seen(self._steps())
            self.comparing = self.comparing or loader.num_workers > 0
            return None
        seen.begins(self._steps())
        self.comparing = any(known.num_workers and not each.same for known, each in self._seen.items())
        if seen.trained or obstacle(self._torch, loader) or worker_obstacle(self._torch, loader):
            return None
        if loader.num_workers:
            return self._instead_of_its_own(loader, seen)
        if fetching is None or not fetching.is_pure():
            return None
        most, _ = most_workers(loader, 2, fetching.batch_bytes, fetching.batch_tensors)
        return min(self._workers, most) or None

    def ask_again(self, control: Control, loader: Any) -> None:
        """Another epoch of one that has workers of ours: it may have more of them by now."""
        if loader.num_workers:
            control.wanted["workers"] = self.wanted(loader, None) or control.wanted["workers"]

    def _instead_of_its_own(self, loader: Any, seen: Seen) -> int | None:
        own = int(loader.num_workers)
        if seen.same:
            more = max(own, min(self._workers, most_workers(loader, 2, 0, 1)[0]))
            if more > own:
                return more
        return None if loader.persistent_workers else own  # these live long already

    def look_at(self, sampler: Any, batch: Any) -> None:
        """A batch of a loader with workers: whether its first ones are those of the epoch before."""
        for loader, seen in list(self._seen.items()):
            if loader._index_sampler is sampler and len(seen.now) < COMPARED and not seen.same:
                seen.now.append(fingerprint(self._torch, batch))

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


def fingerprint(torch: Any, batch: Any) -> int | None:
    """Of values from all over each sample; None where they cannot be read here."""
    total = 0
    try:
        for tensor in tensors_in(torch, batch):
            rows = tensor.detach().reshape(len(tensor), -1)
            part = rows[:, :: max(1, rows.shape[1] // LOOKED_AT)].contiguous()
            total = crc32(memoryview(part.view(torch.uint8).numpy()), total)
    except (RuntimeError, TypeError, ValueError):
        return None  # on a device, sparse, without NumPy
    return total or None
