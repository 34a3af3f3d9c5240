"""One loader under other settings (Control), and one iterator of it that the script holds (Line)."""

from __future__ import annotations

from typing import Any, Callable
from weakref import ref

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.knobs.loader.replacement_iterators import LiveSampler, Settings, build, restart, settings_of, shell
from _flatout_agent.knobs.loader.reuse.worker_reuse import Living, Turns, likeness
from _flatout_agent.knobs.loader.waiting_workers import Parked
from _flatout_agent.knobs.nested_tensors import tensors_in

# Workers that follow others in one epoch must not repeat their draws.
NEXT_SEED = 0x9E3779B97F4A7C15
SEED_BITS = 0x7FFFFFFFFFFFFFFF


class Control:
    """What is wanted of one loader."""

    def __init__(self, torch: Any, loader: Any, parked: Parked | None = None, living: Living | None = None) -> None:
        self.torch = torch
        self._parked = parked or Parked()
        self._living = living or Living(torch)
        self.turns = Turns()
        self.loader: Callable[[], Any] = ref(loader)
        self.own = settings_of(loader)
        self.wanted: dict[str, Any] = {}
        self.takes_over = False  # also where the settings are the script's: workers of ours live longer
        self.delivered = 0  # batches that came from other settings than the script's
        self.fault = ""
        self.serving: Callable[[], Any] = lambda: None  # the iterator in use now, weakly
        self.last = self.own  # the settings that the latest batches came by
        self.pinned = False  # a tensor of a batch was seen in pinned memory
        self.worker_pids: list[list[int]] = []  # of each epoch
        self._dataset = _reference(loader.dataset)
        self._made_like = made_like(loader)

    def is_like(self, loader: Any) -> bool:
        """Whether that one is made from the same dataset in the same way, as a script does that makes one in each epoch."""
        return self._dataset() is loader.dataset and self._made_like == made_like(loader)

    def follow(self, before: Control) -> None:
        """What is wanted of a loader that this one takes the place of is wanted of this one, for as long as of that."""
        self.wanted, self.turns = before.wanted, before.turns
        self.delivered, self.worker_pids, self.fault = before.delivered, before.worker_pids, before.fault

    def settings(self) -> Settings:
        if self.fault:
            return self.own
        prefetch = self.wanted.get("prefetch") or self.own.prefetch or 2
        return self.own._replace(**{**self.wanted, "prefetch": prefetch}).sensible()

    def replaces_own_workers(self) -> bool:
        """Whether starting the script's own iterator would start workers for nothing."""
        return self.own.workers > 0 and not self.fault and (self.takes_over or self.settings() != self.own)

    def shell(self) -> Any:
        loader = self.loader()
        if loader.persistent_workers and loader._iterator is None:
            return None  # they are started once, and stay in reserve for when we are taken off
        return shell(loader)

    def make(self, settings: Settings, rest: Any, seed: int, line: Line) -> tuple[Any, LiveSampler]:
        """An iterator with these settings: one whose workers wait, where they know the dataset as it is now."""
        sampler = LiveSampler(rest)
        loader = self.loader()
        waiting = self._parked.take(loader, settings) if line.in_mid_epoch or self._parked.over_turns else None
        if waiting is not None:
            restart(self.torch, loader, waiting, settings._replace(persistent=True), sampler)
            return waiting, sampler
        if not settings.workers:
            return build(self.torch, loader, settings, sampler, seed), sampler
        iterator = self._living.start(loader, settings, sampler, seed, self.turns)
        if self._parked.open:
            iterator._persistent_workers = True
        return iterator, sampler

    def put_aside(self, iterator: Any, settings: Settings) -> None:
        """A line turns to other settings in mid-epoch, and may come back to these."""
        loader = self.loader()
        if loader is None or not self._parked.put(loader, settings, iterator):
            self.finished_with(iterator)

    def ended(self, iterator: Any, settings: Settings) -> None:
        """An epoch is over, or the script has left it."""
        if self.settings() == settings and settings.workers and self._living.keep(iterator):
            return
        if self._parked.over_turns:
            self.put_aside(iterator, settings)
        else:
            self.finished_with(iterator)

    def finished_with(self, iterator: Any) -> None:
        """Nobody needs this iterator any more."""
        if hasattr(iterator, "_shutdown_workers"):
            iterator._shutdown_workers()

    def let_go(self) -> None:
        loader = self.loader()
        self._living.close_of(None if loader is None else loader.dataset)


class Line:
    """What an iterator of the script's delivers, and where it comes from at present."""

    def __init__(self, control: Control, iterator: Any, visible: Any, remove: Callable[[], None]) -> None:
        self.control = control
        self._loader = control.loader()  # held: `for batch in DataLoader(…)` keeps none
        self._visible = visible
        self._remove = remove
        self._current: Any = None  # None: the script's own iterator
        self._settings = control.own
        self._sampler: LiveSampler | None = None
        self._rest = iterator._sampler_iter  # the script's sampler, wherever it stands
        self._seed = iterator._base_seed
        self._started_workers = control.own.workers > 0 and hasattr(iterator, "_workers")
        self._draining = False
        self._ended = False

    @property
    def unsettled(self) -> bool:
        """What it delivers was still fetched under other settings than are wanted now."""
        return self._draining or (not self._ended and self.control.settings() != self._settings)

    @property
    def source(self) -> Any:
        """The iterator that its batches come from at present."""
        return self._visible() if self._current is None else self._current

    @property
    def in_mid_epoch(self) -> bool:
        iterator = self._visible()
        return iterator is not None and iterator._num_yielded > 0

    def begin(self) -> None:
        """The script's iterator is a shell: there is nothing to drain, and fetching ahead begins at once."""
        self._turn_to(self.control.settings())

    def next(self, original: Any) -> Any:
        iterator = self._visible()
        if not self._draining and not self._ended and self.control.settings() != self._settings:
            self._leave(iterator)
        while True:
            source = iterator if self._current is None else self._current
            try:
                batch = original(source)
            except StopIteration:
                if not self._draining:
                    self._end()
                    raise
                self._draining = False
                self._retire()
                self._turn_to(self.control.settings())
                if self._current is None:
                    self._remove()
                continue
            except Exception as error:
                if self._current is None:
                    raise
                return self._fall_back(error, iterator, original)
            if self._current is not None:
                self._note_delivery(iterator, batch)
            return batch

    def abandoned(self) -> None:
        """The script dropped its iterator, in mid-epoch or at its end."""
        try:
            if self._current is not None:
                self.control.ended(self._current, self._settings)
                self._current = None
        except Exception as error:
            fault("handover.abandoned", error)

    def _leave(self, iterator: Any) -> None:
        """What is in flight is delivered first; an iterator without workers has nothing in flight."""
        source = iterator if self._current is None else self._current
        if hasattr(source, "_workers"):
            if self._sampler is None:
                source._sampler_iter = iter(())
            else:
                self._sampler.close()
            self._draining = True
            return
        self._retire()
        self._turn_to(self.control.settings())
        if self._current is None:
            self._remove()

    def _retire(self) -> None:
        if self._current is not None:
            current, self._current, self._sampler = self._current, None, None
            self.control.put_aside(current, self._settings)

    def _turn_to(self, settings: Settings) -> None:
        iterator = self._visible()
        if settings == self.control.own and self._own_can_serve(iterator):
            self._settings = settings
            return
        if self._started_workers:
            self._seed = (self._seed + NEXT_SEED) & SEED_BITS
        try:
            self._current, self._sampler = self.control.make(settings, self._rest, self._seed, self)
            if settings.workers:
                self._started_workers = True
                self.control.worker_pids.append([worker.pid for worker in self._current._workers])
            self.control.serving = ref(self._current)
            self.control.last = settings
        except Exception as error:
            self._give_up(error)
            self._serve_here(self._rest)
        self._settings = settings

    def _own_can_serve(self, iterator: Any) -> bool:
        if hasattr(iterator, "_workers"):
            if iterator._shutdown or not iterator._persistent_workers:
                return False
            iterator._sampler_iter = self._rest
            for _ in range(iterator._prefetch_factor * iterator._num_workers):
                iterator._try_put_index()
            return True
        if self.control.own.workers:
            return False
        iterator._sampler_iter = self._rest
        return True

    def _note_delivery(self, iterator: Any, batch: Any) -> None:
        self.control.delivered += 1
        if self._settings.pin and not self.control.pinned:
            self.control.pinned = any(tensor.is_pinned() for tensor in tensors_in(self.control.torch, batch))
        iterator._num_yielded += 1
        if self._sampler is not None and self._sampler.pending:
            self._sampler.pending.popleft()

    def _end(self) -> None:
        self._ended = True
        self._remove()

    def _fall_back(self, error: Exception, iterator: Any, original: Any) -> Any:
        """A worker of ours died, or the dataset raised: the same indices once more, in this process, as they would be."""
        self._give_up(error)
        rest = self._sampler.rest() if self._sampler is not None else self._rest
        current = self._current
        self._serve_here(rest)
        try:
            self.control.finished_with(current)
        except Exception as second:
            fault("handover.shutdown", second)
        return original(iterator if self._current is None else self._current)

    def _give_up(self, error: Exception) -> None:
        self.control.fault = f"{type(error).__name__}: {error}"[:300]
        fault("handover", error)

    def _serve_here(self, rest: Any) -> None:
        iterator = self._visible()
        self._sampler = None
        self._settings = self.control.own
        if hasattr(iterator, "_workers"):
            here = self.control.own._replace(workers=0).sensible()
            self._current = build(self.control.torch, self.control.loader(), here, LiveSampler(rest), self._seed)
        else:
            self._current = None
            iterator._sampler_iter = rest


def made_like(loader: Any) -> tuple[Any, ...]:
    kinds = (type(loader), type(loader.sampler), type(loader.batch_sampler))
    return (*kinds, loader.batch_size, settings_of(loader), likeness(loader), getattr(loader, "in_order", True))


def _reference(thing: Any) -> Callable[[], Any]:
    try:
        return ref(thing)
    except TypeError:
        return lambda: None  # a list: nobody is known to follow it
