"""One batch ahead: the following batch is fetched, and on its way to the device, before the script gets the present one.

Batches, order, length of the epoch, and the place at which an error or the end is raised stay as they are. Only where fetching
in this process was seen to draw no random number and to change nothing: else the draws would come in another order. Where
something saves how far a loader has come, nothing is fetched early either, or a resumed run would miss a batch.
"""

from __future__ import annotations

from typing import Any, Callable
from weakref import ref

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.knobs.loader.batch_copies import Mover
from _flatout_agent.knobs.loader.fetch_randomness import random_state
from _flatout_agent.knobs.loader.worker_limits import feedback_methods, samplers_from

WATCHED = 3  # fetches of a dataset that are looked at before one is made early
ASKED = 2  # batches that an iterator has given: it will be asked for another

Fetch = Callable[[Any, Any], Any]  # (iterator, torch's own `__next__`) -> its next batch


class Purity:
    """What fetching from one dataset was seen to do in this process, workers or not."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = _reference(dataset)
        self.fetches = 0
        self.is_pure = True
        self._values: Any = None  # the dataset's plain values after the last fetch
        self._state: dict[str, Any] = {}

    def before(self, torch: Any, dataset: Any) -> None:
        self._state = _state(torch, dataset)
        if self._values is not None and self._values != self._state["values"]:
            self.is_pure = False  # the script sets it as it trains, and means the next batch

    def after(self, torch: Any, dataset: Any) -> None:
        state = _state(torch, dataset)
        self._values = state["values"]
        self.fetches += 1
        self.is_pure = self.is_pure and state == self._state


class Following:
    """A batch that waits for the script, or what fetching it raised."""

    __slots__ = ("batch", "error")

    def __init__(self, batch: Any, error: BaseException | None = None) -> None:
        self.batch = batch
        self.error = error


class Ahead:
    """Stands between the script and its loaders while a copy knob is on, and until what it holds is delivered."""

    def __init__(self, torch: Any, mover: Mover, fetch: Fetch, drained: Callable[[], None]) -> None:
        self._torch = torch
        self._mover = mover
        self._fetch = fetch
        self._drained = drained
        self.stopping = False
        self._waiting: dict[int, Following] = {}
        self._purity: dict[int, Purity] = {}
        self._early: dict[int, Any] = {}  # id of an iterator -> (weak reference, whether it may be asked early)

    def next(self, iterator: Any, original: Any) -> Any:
        following = self._waiting.pop(id(iterator), None) if self._waiting else None
        if following is None:
            batch = self._present(iterator, original)
        elif following.error is not None:
            self._tell_if_drained()
            raise following.error
        else:
            batch = following.batch
        if self.stopping:
            self._tell_if_drained()
            return batch
        self._mover.arrived(batch)
        if self._mover.sends and self._may_fetch_early(iterator):
            self._look_ahead(iterator, original)
        return batch

    def stop(self) -> None:
        """No more early fetches; what waits is still to be delivered."""
        self.stopping = True
        self._tell_if_drained()

    def forget(self, iterator: Any) -> None:
        """Its epoch is over: what waits is the end of it, which the script is not to hear of."""
        self._waiting.pop(id(iterator), None)
        self._tell_if_drained()

    def _tell_if_drained(self) -> None:
        if self.stopping and not self._waiting:
            self._drained()

    def _present(self, iterator: Any, original: Any) -> Any:
        """A batch that is fetched as it is asked for; the first of them are looked at."""
        purity = self._to_watch(iterator)
        if purity is None:
            return self._fetch(iterator, original)
        batch = self._fetch(iterator, original)
        try:
            purity.after(self._torch, iterator._dataset)
        except Exception as error:
            purity.is_pure = False
            fault("ahead.after", error)
        return batch

    def _to_watch(self, iterator: Any) -> Purity | None:
        try:
            if not self._mover.sends or not iterator._num_yielded:
                return None  # an epoch's first batch comes with the sampler's own seed
            dataset = iterator._dataset
            purity = self._purity.get(id(dataset))
            if purity is None or purity.dataset() is not dataset:
                purity = self._purity[id(dataset)] = Purity(dataset)
            if purity.fetches >= WATCHED or not purity.is_pure:
                return None
            purity.before(self._torch, dataset)
            return purity
        except Exception as error:
            fault("ahead.watch", error)
            return None

    def _may_fetch_early(self, iterator: Any) -> bool:
        known = self._early.get(id(iterator))
        if known is not None and known[0]() is iterator:
            return bool(known[1])
        try:
            dataset = iterator._dataset
            purity = self._purity.get(id(dataset))
            if iterator._num_yielded < ASKED or purity is None or purity.dataset() is not dataset:
                return False
            if purity.is_pure and purity.fetches < WATCHED:
                return False
            return self._decide(iterator, purity.is_pure and not keeps_account(iterator))
        except Exception as error:
            fault("ahead.decide", error)
            return False

    def _decide(self, iterator: Any, early: bool) -> bool:
        """Once for each iterator."""
        key = id(iterator)

        def gone(_: Any) -> None:
            self._early.pop(key, None)
            self._waiting.pop(key, None)
            self._tell_if_drained()

        self._early[key] = (ref(iterator, gone), early)
        return early

    def _look_ahead(self, iterator: Any, original: Any) -> None:
        try:
            batch = self._fetch(iterator, original)
        except Exception as error:  # the end of the epoch, too: the script's, when it asks
            self._waiting[id(iterator)] = Following(None, error)
            return
        self._waiting[id(iterator)] = Following(batch)
        self._mover.send(batch)


def keeps_account(iterator: Any) -> bool:
    """Whether somebody could ask how far this iterator has come, or feed what comes next."""
    if getattr(iterator, "_dataset_kind", 1) != 0:  # an iterable dataset counts for itself
        return True
    samplers = samplers_from(getattr(iterator, "_index_sampler", None))
    parts = [iterator, getattr(iterator, "_dataset", None), *samplers]
    return any(hasattr(part, "state_dict") for part in parts) or any(feedback_methods(sampler) for sampler in samplers)


def _state(torch: Any, dataset: Any) -> dict[str, Any]:
    state = random_state(torch, dataset)
    cuda = torch.cuda
    if cuda.is_available() and cuda.is_initialized():
        state["cuda"] = bytes(cuda.get_rng_state().numpy())  # kept on the host: asking does not wait for the card
    return state


def _reference(thing: Any) -> Callable[[], Any]:
    try:
        return ref(thing)
    except TypeError:
        return lambda: thing  # a list: held while the knob is on
