"""Where a trial's batches come from: the script's loader, batches kept from it, or the loader drawn from at full speed."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any, Callable, Iterator, NoReturn
from weakref import ref

from _flatout_agent.modes.driver import Driver
from _flatout_agent.trial.loader_ceiling import Supply
from _flatout_agent.trial.replayed_batches import Replay

SOON = 8  # batches of a validation whose memory is asked for: they are all alike
PATIENCE = 8  # batches of an epoch without a step, before it is drawn from all the same: some scripts step at its end


class Endless:
    """A sampler that begins anew where its epoch ends: a script that trains for a short while is not over in mid-trial."""

    def __init__(self, rest: Iterator[Any], sampler: Any, goes_on: Callable[[], bool]) -> None:
        self._rest = rest
        self._sampler = sampler
        self._goes_on = goes_on

    def __iter__(self) -> Endless:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._rest)
        except StopIteration:
            if not self._goes_on():
                raise
            self._rest = iter(self._sampler)
            return next(self._rest)


class Feed:
    """Stands between the script and its loaders' iterators, whose `__next__` the loader's hook hands over."""

    def __init__(self, driver: Driver, replay: Replay) -> None:
        self._driver = driver
        self._handover = driver.scene.handover
        self._replay = replay
        self._yields: dict[int, int] = {}
        self._exhausted: int | None = None  # an iterator whose end the script has not heard of yet
        self.supply: Supply | None = None
        self.turned = False  # a loader came to its end since this was last set …
        self.epoch_turned = False  # … one that is trained from
        self.on_turn: Callable[[], None] = _nothing  # before the script hears of it
        self.endless = False  # an epoch of what is trained on does not end
        self.hides_turns = False  # an epoch ends and the next begins, as far as the loader is concerned: the script is not told
        self.on_going_on: Callable[[], None] = _nothing  # before an epoch gets longer than it is
        self.cut = False  # the epoch of what is trained on ends now …
        self.brief = False  # … and what is looked at after it ends soon
        self._prepared: dict[int, int] = {}  # iterators, with the steps that had been taken when each began
        self.waited = 0  # nanoseconds in which the script waited for a batch, all loaders together

    def iterator_began(self, iterator: int) -> None:
        self._yields.pop(iterator, None)
        self._prepared.pop(iterator, None)
        if self._exhausted == iterator:
            self._exhausted = None

    def __call__(self, iterator: Any, original: Any) -> Any:
        began = perf_counter_ns()
        try:
            return self._give(iterator, original)
        finally:
            self.waited += perf_counter_ns() - began

    def _give(self, iterator: Any, original: Any) -> Any:
        if self._exhausted == id(iterator):
            self._exhausted = None
            raise StopIteration
        supply = self.supply
        if supply is None or supply.over or not (self._trained_from(iterator) and self._is_trained_from_by_now(iterator)):
            return self._take(iterator, original)
        if self._yields.get(id(iterator), 0) <= PATIENCE:
            supply.begin_epoch(_length(iterator))
        batch = supply.draw(lambda: self._take(iterator, original), self._handover.unsettled)
        if supply.epoch_over:
            self._exhausted = id(iterator)
        return batch

    def _take(self, iterator: Any, original: Any) -> Any:
        key = id(iterator)
        if key not in self._prepared:
            self._prepare(iterator)
        done = self._yields[key] = self._yields.get(key, getattr(iterator, "_num_yielded", 0)) + 1
        if self.brief and done > SOON and not self._trained_from(iterator):
            self._end(iterator)
        if self.cut and self._trained_from(iterator) and self._stepped_since_it_began(iterator):
            self.cut, self.brief = False, True
            self._end(iterator)
        length = _length(iterator)
        if length is not None and done > length and not self._goes_on(iterator, key):
            if not self._turns_behind_the_script(iterator):
                self._end(iterator)
            self._yields.pop(key, None)
            self._note_turn(iterator)
            self._begin_again(iterator)
            return self._take(iterator, original)
        if self._replay.mode:
            batch = self._replay.give(iterator)
            if batch is not None:
                self._driver.scene.mover.arrived(batch)
                return batch
        try:
            batch = self._handover.next_batch(iterator, original) if self._handover.busy else original(iterator)
        except StopIteration:
            self._note_turn(iterator)
            raise
        if not self._replay.mode:
            self._replay.keep(iterator, batch)
        return batch

    def _end(self, iterator: Any) -> NoReturn:
        self._yields.pop(id(iterator), None)
        self._note_turn(iterator)
        raise StopIteration

    def _prepare(self, iterator: Any) -> None:
        """Before its first batch is taken: later its sampler may be in other hands."""
        key = id(iterator)
        self._prepared[key] = self._driver.scene.steps_done
        if _length(iterator) is not None and hasattr(iterator, "_sampler_iter"):
            held = ref(iterator)  # whose sampler this is
            goes_on = lambda: self._goes_on(held(), key)  # noqa: E731
            iterator._sampler_iter = Endless(iterator._sampler_iter, iterator._index_sampler, goes_on)

    def _goes_on(self, iterator: Any, key: int) -> bool:
        """No step since its epoch began: a validation, on data that are trained on as well. What workers fetch ahead of the
        first steps is known by its loader."""
        if not self.endless or iterator is None:
            return False
        if self._driver.scene.steps_done > self._prepared.get(key, 0):
            trained = self._is_trained_on(iterator._dataset)
        else:
            ahead = self._yields.get(key, 0) < (_length(iterator) or 0)
            trained = ahead and self._trained_from(iterator) and self._is_of_a_loader(iterator)
        if not trained:
            return False
        self.on_going_on()
        return True

    def _turns_behind_the_script(self, iterator: Any) -> bool:
        """Not where the script's own iterator has workers: those end with it."""
        own = hasattr(iterator, "_workers") or not hasattr(iterator, "_sampler_iter")
        return self.hides_turns and not own and self._trained_from(iterator)

    def _begin_again(self, iterator: Any) -> None:
        """What the loader does where an epoch ends and the next begins, under the iterator that the script holds."""
        self.on_going_on()
        self._handover.epoch_over(iterator)
        self._prepared.pop(id(iterator), None)
        iterator._sampler_iter = iter(iterator._index_sampler)
        iterator._num_yielded = 0

    def _note_turn(self, iterator: Any) -> None:
        if not self.turned:
            self.on_turn()
        self.turned = True
        stepped = self._driver.scene.steps_done > self._prepared.get(id(iterator), 0)
        self.epoch_turned = self.epoch_turned or (stepped and self._trained_from(iterator))

    def _trained_from(self, iterator: Any) -> bool:
        """As far as can be known before its batch is used: no training fetches where gradients are off."""
        return self._driver.torch.is_grad_enabled() and self._is_trained_on(getattr(iterator, "_dataset", None))

    def _stepped_since_it_began(self, iterator: Any) -> bool:
        steps = self._driver.scene.steps_done
        return steps > self._prepared.get(id(iterator), steps)

    def _is_trained_from_by_now(self, iterator: Any) -> bool:
        """A validation on data that are trained on as well begins in the same way: it is told by the steps that it does not
        take, and where an epoch has few of these, by its loader."""
        if self._stepped_since_it_began(iterator):
            return True
        return self._yields.get(id(iterator), 0) >= PATIENCE and self._is_of_a_loader(iterator)

    def _is_of_a_loader(self, iterator: Any) -> bool:
        """That is trained from: its sampler, too, where another loader has the same data."""
        loaders = self._driver.held_to_train_from()
        return any(getattr(loader, "_index_sampler", None) is iterator._index_sampler for loader in loaders)

    def _is_trained_on(self, dataset: Any) -> bool:
        return any(loader.dataset is dataset for loader in self._driver.scene.loaders)


def _nothing() -> None:
    pass


def _length(iterator: Any) -> int | None:
    """Of an epoch: replayed batches are not taken from the loader, and would make it longer."""
    try:
        return len(iterator._index_sampler)
    except Exception:
        return None
