"""Other settings for a loader whose iterator the script already holds, in the middle of an epoch.

The script keeps its iterator; what `next` on it returns comes from another one, to which the live sampler was handed over
after the batches in flight were delivered. So batches, order, length of the epoch and the script's random draws stay.
The hook on `_BaseDataLoaderIter.__next__` calls `next_batch`, the one on `DataLoader.__iter__` calls `start_epoch`.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.patches import Patches, dress
from _flatout_agent.knobs.loader.batch_ahead import Ahead
from _flatout_agent.knobs.loader.batch_copies import Mover
from _flatout_agent.knobs.loader.evaluation_workers import Evaluations
from _flatout_agent.knobs.loader.fetch_randomness import Fetching
from _flatout_agent.knobs.loader.loader_control import Control, Line
from _flatout_agent.knobs.loader.ready_batches import queued
from _flatout_agent.knobs.loader.reuse.worker_reuse import Living
from _flatout_agent.knobs.loader.waiting_workers import Parked

WATCHED_FETCHES = 3


class Handover:
    """The loaders under control, and the iterators of theirs that the script holds."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._controls: dict[int, Control] = {}
        self._lines: dict[int, Line] = {}
        self._fetching: dict[int, tuple[Any, Fetching]] = {}
        self._parked = Parked()
        self._living = Living(torch)
        self.evaluations = Evaluations(torch)
        self._watching = False
        self._ahead: Ahead | None = None
        self.busy = False  # while it is False the hooks need not call at all

    @property
    def parks(self) -> bool:
        """Whether workers wait for settings that may come back: in trials, which change to and fro."""
        return self._parked.open

    @parks.setter
    def parks(self, wanted: bool) -> None:
        self._parked.open = self._parked.over_turns = wanted
        if not wanted:
            self._parked.close()

    def park_over_turns(self, wanted: bool) -> None:
        """From one epoch to the next as well: only while nobody times the turn."""
        self._parked.over_turns = wanted and self._parked.open

    # --- what the hooks call -------------------------------------------------------------------------------------

    def next_batch(self, iterator: Any, original: Any) -> Any:
        """`original` is torch's own `__next__`: called by its name it would be the hook again."""
        if self._ahead is None:
            return self._next(iterator, original)
        return self._ahead.next(iterator, original)

    def _next(self, iterator: Any, original: Any) -> Any:
        line = self._lines.get(id(iterator))
        if line is not None:
            return line.next(original)
        if self._controls:
            line = self._adopt(iterator)
            if line is not None:
                return line.next(original)
        watching = self._watching
        if self.evaluations.on:
            self.evaluations.fetched(getattr(iterator, "_index_sampler", None))
            watching = watching or self._is_to_be_watched(iterator)
        return self._watched(iterator, original) if watching else original(iterator)

    def start_epoch(self, loader: Any, original: Any) -> Any:
        """`original` is torch's own `DataLoader.__iter__`."""
        control = self.known(loader) or self._followed(loader) or self._evaluated(loader)
        if control is None:
            return original(loader)
        if not control.replaces_own_workers():
            iterator = original(loader)
            if control.settings() != control.own:
                self._line(control, iterator)  # the script may hold no more of the loader than this
            return iterator
        try:
            iterator = control.shell()
        except Exception as error:
            fault("handover.start_epoch", error)
            return original(loader)
        if iterator is None:
            return original(loader)
        line = self._line(control, iterator)
        line.begin()
        return iterator

    def epoch_over(self, iterator: Any) -> None:
        """As if the script had dropped this iterator: what serves it ends, or waits for the next epoch."""
        if self._ahead is not None:
            self._ahead.forget(iterator)
        line = self._lines.pop(id(iterator), None)
        if line is not None:
            line.abandoned()
        self._tell_busy()

    # --- what the knobs call -------------------------------------------------------------------------------------

    def control(self, loader: Any) -> Control:
        found = self._controls.get(id(loader))
        if found is None or found.loader() is not loader:
            # An epoch may still run by the one that was released: what is wanted now is wanted of it.
            running = (line.control for line in self._lines.values() if line.control.loader() is loader)
            found = self._controls[id(loader)] = next(running, None) or Control(self._torch, loader, self._parked, self._living)
        self.busy = True
        return found

    def known(self, loader: Any) -> Control | None:
        found = self._controls.get(id(loader))
        return found if found is not None and found.loader() is loader else None

    def release(self, loader: Any) -> None:
        """Nothing is wanted of this loader any more: its lines go back to the script's own settings as they drain."""
        found = self.known(loader)
        if found is not None and not found.wanted:
            found.let_go()
            del self._controls[id(loader)]
            self._tell_busy()

    def hand_batches_to(self, mover: Mover | None) -> None:
        """Each batch is shown to the mover before the script gets it; None ends that, once all it holds is delivered."""
        if mover is not None:
            self._ahead = self._ahead or Ahead(self._torch, mover, self._next, self._ahead_drained)
            self._ahead.stopping = False
        elif self._ahead is not None:
            self._ahead.stop()
        self._tell_busy()

    def _ahead_drained(self) -> None:
        self._ahead = None
        self._tell_busy()

    def watch(self) -> None:
        """See whether fetching touches random state, for the first batches of each dataset."""
        self._watching = self.busy = True

    def stop_watching(self) -> None:
        self._watching = False
        self._tell_busy()

    def unsettled(self) -> bool:
        """Whether batches that were fetched before the last change are still to come: they say nothing of it."""
        return any(line.unsettled for line in self._lines.values())

    def lying_ready(self, iterator: Any) -> int | None:
        """Batches that were fetched ahead for this iterator of the script's, where that can be told."""
        line = self._lines.get(id(iterator))
        return queued(iterator if line is None else line.source)

    def fetching(self, dataset: Any) -> Fetching | None:
        kept = self._fetching.get(id(dataset))
        return kept[1] if kept is not None and kept[0]() is dataset else None

    # --- inside --------------------------------------------------------------------------------------------------

    def _followed(self, loader: Any) -> Control | None:
        """Of a loader that the script makes anew each epoch: not where both are in use, nor for an evaluation."""
        if not self._torch.is_grad_enabled():
            return None
        in_use = [line.control for line in self._lines.values()]
        for key, before in list(self._controls.items()):
            if before.wanted and before.is_like(loader) and before not in in_use:
                del self._controls[key]
                found = self.control(loader)
                found.follow(before)
                return found
        return None

    def _evaluated(self, loader: Any) -> Control | None:
        """Not in trials, which change the workers of the training to and fro."""
        if not self.evaluations.on or self._parked.open:
            return None
        try:
            workers = self.evaluations.wanted(loader, self.fetching(loader.dataset))
        except Exception as error:
            fault("handover.evaluated", error)
            return None
        if workers is None:
            return None
        control = self.control(loader)
        control.wanted["workers"], control.takes_over = workers, True
        self.evaluations.controls.append(control)
        return control

    def end_evaluations(self) -> None:
        for loader in self.evaluations.end():
            self.release(loader)

    def _adopt(self, iterator: Any) -> Line | None:
        sampler = getattr(iterator, "_index_sampler", None)
        for control in self._controls.values():
            loader = control.loader()
            if loader is not None and loader._index_sampler is sampler and control.settings() != control.own:
                return self._line(control, iterator)
        return None

    def _line(self, control: Control, iterator: Any) -> Line:
        key = id(iterator)

        def gone(_: Any = None) -> None:
            line = self._lines.pop(key, None)
            if line is not None:
                line.abandoned()
            self._tell_busy()

        line = self._lines[key] = Line(control, iterator, ref(iterator, gone), gone)
        return line

    def _tell_busy(self) -> None:
        self.busy = bool(self._controls or self._lines or self._watching or self._ahead)

    def _is_to_be_watched(self, iterator: Any) -> bool:
        fetching = self.fetching(getattr(iterator, "_dataset", None))
        return not iterator._num_workers and (fetching is None or fetching.fetches < WATCHED_FETCHES)

    def _watched(self, iterator: Any, original: Any) -> Any:
        dataset = getattr(iterator, "_dataset", None)
        fetching = self.fetching(dataset)
        if fetching is None:
            fetching = Fetching()
            try:
                self._fetching[id(dataset)] = (ref(dataset), fetching)
            except TypeError:
                self._fetching[id(dataset)] = (lambda: dataset, fetching)  # a list: held, while watching
        # The first batch of an epoch comes with the sampler's own seed; workers draw elsewhere.
        # Nor while the script profiles itself: our look would be in its tables.
        watched = fetching.fetches >= WATCHED_FETCHES or is_profiling(self._torch)
        if iterator._num_workers or not iterator._num_yielded or watched:
            batch = original(iterator)
        else:
            before = fetching.before(self._torch, dataset)
            batch = original(iterator)
            fetching.after(self._torch, dataset, before)
        try:
            fetching.weigh(self._torch, batch)
        except Exception as error:
            fault("handover.weigh", error)
        return batch


def is_profiling(torch: Any) -> bool:
    enabled = getattr(torch.autograd, "_profiler_enabled", None)
    return bool(enabled is not None and enabled())


def install(torch: Any, handover: Handover, patches: Patches) -> None:
    """The two hooks on their own, for tests and for the library; the agent calls from its observers."""
    from torch.utils.data import dataloader

    original_next = dataloader._BaseDataLoaderIter.__next__
    original_iter = dataloader.DataLoader.__iter__

    def __next__(self: Any) -> Any:
        return handover.next_batch(self, original_next) if handover.busy else original_next(self)

    def __iter__(self: Any) -> Any:
        return handover.start_epoch(self, original_iter) if handover.busy else original_iter(self)

    patches.put(dataloader._BaseDataLoaderIter, "__next__", dress(__next__, original_next))
    patches.put(dataloader.DataLoader, "__iter__", dress(__iter__, original_iter))
