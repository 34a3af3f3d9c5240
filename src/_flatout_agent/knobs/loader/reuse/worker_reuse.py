"""Workers of ours that live over the turn of the epoch, where each batch is the one that a fresh worker would give.

At the end of an epoch each worker looks whether anything that fetching reads has changed in it, while nothing is asked of it.
As the next epoch begins the same look is made here. Where all is as it was when the workers were started, a fresh worker would
be what they are, but for its seeds: these they get. Else they end, and fresh ones are started.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any, Callable
from weakref import ref

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.object_numbers import Identities
from _flatout_agent.knobs.loader.fetch_randomness import plain_values
from _flatout_agent.knobs.loader.replacement_iterators import LiveSampler, Settings, build, restart
from _flatout_agent.knobs.loader.reuse.fetch_checksum import FetchState, fetch_state
from _flatout_agent.knobs.loader.reuse.inside_worker import Birth, Look, Told
from _flatout_agent.knobs.loader.reuse.restart_cost import TurnCosts
from _flatout_agent.knobs.loader.reuse.restart_reasons import CANNOT_BE_TOLD, Renewal, raised
from _flatout_agent.knobs.loader.worker_limits import start_method

MOST = 4  # iterators at rest
MOST_WORKERS = 64  # of all of them
MEMORY_GROWS = 1.5  # times what a worker had after its first epoch …
MEMORY_MORE = 64 << 20  # … and so many bytes more: then fresh ones come in their place
LONGEST_WAIT = 10.0  # seconds, for what workers tell
TOO_MUCH = Renewal("too-much-to-read")


class Turns:
    """Of one loader: how often workers were kept over the turn of an epoch, how often started anew, and why at last."""

    def __init__(self) -> None:
        self.started = False
        self.kept = 0
        self.fresh = 0
        self.why: Renewal | None = None
        self.known = False  # it can be told at each turn whether fresh ones would be the same
        self.costs = TurnCosts()

    def told(self) -> dict[str, Any]:
        if not self.kept and not self.fresh:
            return {"turns_known": self.known}
        why = {"fresh_because": self.why.code, "fresh_what": self.why.what} if self.why else {}
        return {"turns_known": self.known, "turns_kept": self.kept, "turns_fresh": self.fresh, **why}


class Life:
    """Of one iterator's workers."""

    def __init__(self, loader: Any, settings: Settings, state: FetchState, costs: TurnCosts) -> None:
        self.settings = settings
        self.state = state  # as they were started
        self.costs = costs
        self.like = likeness(loader)
        self.dataset = _reference(loader.dataset)
        self.values = plain_values(loader.dataset) if settings.persistent else None
        self.memory: list[int] = []  # of each after its first epoch

    def may_stay(self) -> bool:
        """What cannot be told is kept only where the knob is on that asks for it."""
        return self.state.checksum is not None or self.settings.persistent


class Living:
    """The iterators at rest between two epochs, of all loaders, the latest last."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._numbers = Identities()
        self._resting: list[tuple[Any, Life]] = []

    def start(self, loader: Any, settings: Settings, sampler: LiveSampler, seed: int, turns: Turns) -> Any:
        """An iterator for an epoch, or for what is left of one: the last epoch's, or a fresh one."""
        birth = self._birth_of(loader, turns.costs.most_bytes(settings.workers))
        state = _looked(birth, settings.workers, turns.costs)
        before = self._take(loader, settings)
        if before is not None:
            iterator, life = before
            why = self._why_fresh(iterator, life, state, loader)
            if why is None:
                try:
                    restart(self._torch, loader, iterator, settings, sampler, seed)
                    turns.kept += 1
                    return iterator
                except Exception as error:
                    why = raised(error)
                    fault("living.restart", error)
            turns.why = why
            _close(iterator)
        elif turns.started:
            turns.why = state.unknown or Renewal("epoch-left")
        turns.fresh += turns.started
        turns.started = True
        began = perf_counter()
        iterator = build(
            self._torch, loader, settings._replace(persistent=False), sampler, seed, birth._replace(checksum=state.checksum)
        )
        turns.costs.started(settings.workers, perf_counter() - began)
        untold = state.checksum is None or (turns.why is not None and turns.why.code == CANNOT_BE_TOLD)
        turns.known = not untold and not turns.costs.too_much(settings.workers)
        iterator.flatout_life = life = Life(loader, settings, state, turns.costs)
        # Only now: told of it as they began, torch would have each of them waited for at exit.
        iterator._persistent_workers = life.may_stay()
        return iterator

    def keep(self, iterator: Any) -> bool:
        """At the end of an epoch: they wait for the next. False: nobody needs this iterator any more."""
        life: Life | None = getattr(iterator, "flatout_life", None)
        if life is None or not _at_rest(iterator) or life.settings.workers > MOST_WORKERS:
            return False
        if life.costs.too_much(life.settings.workers):
            life.state = FetchState(None, TOO_MUCH)
        if not life.may_stay():
            return False
        if life.state.checksum is not None:
            self._ask(iterator)
        for name in ("_dataset", "_collate_fn", "_worker_init_fn"):
            setattr(iterator, name, None)  # the script may drop them meanwhile
        iterator._index_sampler = iterator._sampler_iter = iter(())
        self._resting.append((iterator, life))
        while len(self._resting) > MOST or sum(life.settings.workers for _, life in self._resting) > MOST_WORKERS:
            _close(self._resting.pop(0)[0])
        return True

    def close_of(self, dataset: Any) -> None:
        """Nothing of ours serves this dataset any more; nor those that are gone."""
        for entry in list(self._resting):
            held = entry[1].dataset()
            if held is None or held is dataset:
                self._resting.remove(entry)
                _close(entry[0])

    # -- inside ----------------------------------------------------------------------------------------------------

    def _birth_of(self, loader: Any, most: int) -> Birth:
        if start_method(loader) != "fork":
            return Birth(None, partial(FetchState, None, Renewal("not-forked")), loader.worker_init_fn)
        roots = {"dataset": loader.dataset, "collate_fn": loader.collate_fn, "worker_init_fn": loader.worker_init_fn}
        return Birth(None, partial(fetch_state, self._torch, roots, self._numbers, most), loader.worker_init_fn)

    def _take(self, loader: Any, settings: Settings) -> tuple[Any, Life] | None:
        like = likeness(loader)
        for entry in reversed(self._resting):
            iterator, life = entry
            if life.dataset() is loader.dataset and life.settings == settings and life.like == like:
                self._resting.remove(entry)
                return iterator, life
        return None

    def _why_fresh(self, iterator: Any, life: Life, state: FetchState, loader: Any) -> Renewal | None:
        """None where its workers are what fresh ones would be."""
        if iterator._shutdown or not all(worker.is_alive() for worker in iterator._workers):
            return Renewal("worker-ended")
        if life.state.checksum is None:
            return None if life.values == plain_values(loader.dataset) else Renewal("script-changed-it")
        if state.checksum is None:
            return state.unknown
        if state.checksum != life.state.checksum:
            return Renewal("script-changed-it")
        try:
            told = self._hear(iterator)
        except TimeoutError:
            return Renewal("slow-look")
        except Exception as error:
            return raised(error)
        why = next((one.renewal for one in told if one.renewal), None)
        if why is not None and why.code == CANNOT_BE_TOLD and life.settings.persistent:
            why = None  # what was opened at need: the knob is on that asks for it
        return why or _grown(life, [one.memory for one in told])

    def _ask(self, iterator: Any) -> None:
        from torch.utils.data._utils import worker

        for queue in iterator._index_queues:
            queue.put(worker._ResumeIteration(Look()))

    def _hear(self, iterator: Any) -> list[Told]:
        """What each worker tells. They may have had all of a validation's time for it."""
        told: list[Told] = []
        end = perf_counter() + LONGEST_WAIT
        while len(told) < len(iterator._workers):
            left = end - perf_counter()
            if left <= 0:
                raise TimeoutError
            found, message = iterator._try_get_data(min(left, 5.0))
            if found:
                told.append(message[0].seed)
        return told


def _looked(birth: Birth, workers: int, costs: TurnCosts) -> FetchState:
    if costs.too_much(workers):
        return FetchState(None, TOO_MUCH)
    began = perf_counter()
    state = birth.look()
    costs.looked(state.bytes, perf_counter() - began)
    return state


def likeness(loader: Any) -> tuple[Any, ...]:
    """What workers are told of a loader beside what is looked at: another loader with the same is as good."""
    return (
        loader.drop_last,
        loader.timeout,
        loader._dataset_kind,
        loader._auto_collation,
        id(loader.multiprocessing_context),
        getattr(loader, "pin_memory_device", ""),
    )


def _at_rest(iterator: Any) -> bool:
    """Its epoch was fetched to the end, and all of that was delivered."""
    over = not iterator._shutdown and not iterator._task_info and not iterator._tasks_outstanding
    return bool(over and all(worker.is_alive() for worker in iterator._workers))


def _grown(life: Life, memory: list[int]) -> Renewal | None:
    life.memory = life.memory or memory
    for first, now in zip(life.memory, memory):  # noqa: B905
        if now > MEMORY_GROWS * first and now > first + MEMORY_MORE:
            return Renewal("grown", f"{first >> 20} → {now >> 20} MiB")
    return None


def _close(iterator: Any) -> None:
    try:
        iterator._shutdown_workers()
    except Exception as error:
        fault("living.close", error)


def _reference(thing: Any) -> Callable[[], Any]:
    try:
        return ref(thing)
    except TypeError:
        return lambda: thing  # a list: held for as long as workers know it
