"""Kept batches handed out again: what the loop could do if its data cost nothing.

Fresh containers each time, and tensors that the script has changed in place are copied anew. An epoch never becomes
longer than its loader says: schedulers count on that.
"""

from __future__ import annotations

from typing import Any, Callable

from _flatout_agent.trial.resized_batches import CannotComposeError, composed

MOST_BATCHES = 8

HOST, DEVICE = "replay-host", "replay-device"


class Kept:
    """One tensor of a kept batch: as it was, and the one that the script gets."""

    def __init__(self, tensor: Any) -> None:
        self._own = _copy(tensor)
        self._given = _copy(tensor)
        self._version = self._given._version

    def give(self) -> Any:
        if self._given._version != self._version or self._given.grad_fn is not None:
            self._given = _copy(self._own)
            self._version = self._given._version
        return self._given

    def on(self, device: Any) -> Kept:
        return Kept(self._own.to(device))

    def pinned(self) -> Kept:
        return Kept(self._own.pin_memory()) if self._own.device.type == "cpu" else self

    @property
    def tensor(self) -> Any:
        return self._own

    def bytes_on(self, device_type: str) -> int:
        """Held there by us: the copy that is kept, and the one that the script gets again and again."""
        return 2 * self._own.numel() * self._own.element_size() if self._own.device.type == device_type else 0


class Replay:
    """The last batches that the training loaders gave, by loader iterator's dataset."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._batches: dict[int, list[Any]] = {}  # identity of a dataset -> kept batches
        self._moved: dict[int, list[Any]] = {}
        self._pinned: dict[int, list[Any]] = {}  # the same in page-locked memory, while that is asked for
        self._sized: dict[int, list[Any]] | None = None  # batches of another size, while they are asked for
        self._next = 0
        self.mode = ""

    def ready(self) -> bool:
        return any(len(batches) >= 2 for batches in self._batches.values())

    def keep(self, iterator: Any, batch: Any) -> None:
        kept = self._batches.setdefault(_source(iterator), [])
        if len(kept) < MOST_BATCHES:
            kept.append(self._each(batch, Kept))

    def give(self, iterator: Any) -> Any:
        """The next kept batch for this iterator, or None where nothing of its dataset was kept."""
        kept = self._moved if self.mode == DEVICE else (self._pinned or self._batches)
        batches = (self._sized if self._sized is not None else kept).get(_source(iterator))
        if not batches:
            return None
        self._next += 1
        return _rebuilt(batches[self._next % len(batches)], Kept, lambda kept: kept.give())

    def move(self, device: Any) -> None:
        self._moved = {
            source: [_rebuilt(batch, Kept, lambda kept: kept.on(device)) for batch in batches]
            for source, batches in self._batches.items()
        }

    def forget_moved(self) -> None:
        self._moved = {}

    @property
    def is_pinned(self) -> bool:
        return self.mode == HOST and bool(self._pinned) and self._sized is None

    def pin(self, wanted: bool) -> None:
        """As a loader that pins would give them: the floor with the copy is another one then."""
        if not wanted:
            self._pinned = {}
        elif not self._pinned:
            self._pinned = {
                source: [_rebuilt(batch, Kept, lambda kept: kept.pinned()) for batch in batches]
                for source, batches in self._batches.items()
            }

    def resize(self, size: int | None) -> bool:
        """From now on batches of so many samples, put together from the kept ones; None: as they came."""
        self._sized = None
        if size is None:
            return True
        try:
            self._sized = {source: [self._composed(batches, size)] for source, batches in self._batches.items()}
        except CannotComposeError:
            return False
        return True

    def _composed(self, batches: list[Any], size: int) -> Any:
        plain = [_rebuilt(batch, Kept, lambda kept: kept.tensor) for batch in batches]
        return self._each(composed(self._torch, plain, size), Kept)

    def bytes_on(self, device_type: str) -> int:
        total = 0

        def add(kept: Kept) -> Kept:
            nonlocal total
            total += kept.bytes_on(device_type)
            return kept

        for batches in [*self._batches.values(), *self._moved.values(), *(self._sized or {}).values()]:
            for batch in batches:
                _rebuilt(batch, Kept, add)
        return total

    def _each(self, batch: Any, change: Callable[[Any], Any]) -> Any:
        return _rebuilt(batch, self._torch.Tensor, change)


def _source(iterator: Any) -> int:
    return id(getattr(iterator, "_dataset", iterator))


def _copy(tensor: Any) -> Any:
    import torch

    # A validation may fetch in inference mode. What is made there, pinned copies included, has no version counter.
    with torch.inference_mode(False):
        fresh = (tensor if tensor.is_inference() else tensor.detach()).clone()
        return fresh.pin_memory() if tensor.device.type == "cpu" and tensor.is_pinned() else fresh


def _rebuilt(value: Any, kind: Any, change: Callable[[Any], Any]) -> Any:
    """The same structure with every `kind` in it changed; what is no plain container stays itself."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        parts = {key: _rebuilt(part, kind, change) for key, part in value.items()}
        return parts if type(value) is dict else type(value)(parts)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_rebuilt(part, kind, change) for part in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_rebuilt(part, kind, change) for part in value)
    return value
