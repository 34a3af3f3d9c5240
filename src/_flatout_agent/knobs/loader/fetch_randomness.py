"""Whether fetching draws random numbers or changes the dataset: then workers would draw others."""

from __future__ import annotations

import random
import sys
from typing import Any, Iterator

from _flatout_agent.knobs.nested_tensors import tensors_in

DEPTH = 3
MOST_PARTS = 2000
MOST_SHAPES = 8  # tensors of a batch whose shapes are told


class Fetching:
    """What was seen of one dataset's fetches in this process."""

    def __init__(self) -> None:
        self.fetches = 0
        self.touched: set[str] = set()
        self.batch_bytes = 0
        self.batch_tensors = 0
        self._shapes: list[list[Any]] | None = None  # of the batches so far; None for a dimension that differed

    def is_pure(self) -> bool:
        return self.fetches > 0 and not self.touched

    def before(self, torch: Any, dataset: Any) -> dict[str, Any]:
        return random_state(torch, dataset)

    def after(self, torch: Any, dataset: Any, before: dict[str, Any]) -> None:
        self.fetches += 1
        for name, state in random_state(torch, dataset).items():
            if name not in before or before[name] != state:
                self.touched.add(name)

    def weigh(self, torch: Any, batch: Any) -> None:
        tensors = tensors_in(torch, batch)
        self.batch_tensors = len(tensors)
        self.batch_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        seen = [list(tensor.shape) for tensor in tensors[:MOST_SHAPES]]
        self._shapes = seen if self._shapes is None else merged(self._shapes, seen)

    def shapes(self) -> list[str]:
        """ "32x3x224x224" for each tensor of a batch; "?" for what is not the same in every batch."""
        return [told_shape(sizes) for sizes in self._shapes or []]


def merged(known: list[list[Any]], seen: list[list[Any]]) -> list[list[Any]]:
    found = []
    for first, second in zip(known, seen):  # noqa: B905
        if len(first) != len(second):
            found.append([None])
        else:
            found.append([size if size == other else None for size, other in zip(first, second)])  # noqa: B905
    return found


def told_shape(sizes: list[Any]) -> str:
    return "x".join("?" if size is None else str(size) for size in sizes) or "scalar"


def same_shapes(recorded: list[str], here: list[str]) -> bool:
    """Whether batches of the one could be batches of the other."""
    return len(recorded) == len(here) and all(_same_shape(*both) for both in zip(recorded, here))  # noqa: B905


def _same_shape(first: str, second: str) -> bool:
    one, other = first.split("x"), second.split("x")
    if "?" in (first, second):
        return True
    return len(one) == len(other) and all(a == b or "?" in (a, b) for a, b in zip(one, other))  # noqa: B905


def random_state(torch: Any, dataset: Any) -> dict[str, Any]:
    """The three global generators, the dataset's own ones, and its own plain values."""
    state: dict[str, Any] = {"torch": bytes(torch.get_rng_state().numpy()), "random": random.getstate()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        state["numpy"] = (kind, keys.tobytes(), *rest)
    for path, part in parts_of(dataset):
        name = type(part).__name__
        if name == "Generator" and hasattr(part, "bit_generator"):
            state[path] = repr(part.bit_generator.state)
        elif name == "Generator" and hasattr(part, "get_state"):
            state[path] = bytes(part.get_state().numpy())
        elif name == "RandomState":
            state[path] = repr(part.get_state())
        elif isinstance(part, random.Random):
            state[path] = part.getstate()
    state["values"] = plain_values(dataset)
    return state


def plain_values(dataset: Any) -> tuple[tuple[str, Any], ...]:
    """A counter, an epoch, a probability: what a dataset may change, or a script may change on it."""
    found = [(path, part) for path, part in parts_of(dataset) if part is None or isinstance(part, (bool, int, float, str))]
    return tuple(found)


def parts_of(thing: Any, path: str = "dataset", depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """What hangs on an object: attributes, and what short lists and dictionaries hold."""
    todo = [(path, thing, depth)]
    seen: set[int] = set()
    count = 0
    while todo and count < MOST_PARTS:
        path, thing, left = todo.pop()
        count += 1
        if path != "dataset":
            yield path, thing
        if left == 0 or id(thing) in seen or isinstance(thing, (str, bytes, int, float, type)):
            continue
        seen.add(id(thing))
        if isinstance(thing, dict) and len(thing) <= 32:
            todo += [(f"{path}[{key!r}]", part, left - 1) for key, part in thing.items()]
        elif isinstance(thing, (list, tuple)) and len(thing) <= 32:
            todo += [(f"{path}[{number}]", part, left - 1) for number, part in enumerate(thing)]
        elif hasattr(thing, "__dict__") and not hasattr(thing, "dtype") and type(thing).__name__ != "module":
            todo += [(f"{path}.{name}", part, left - 1) for name, part in vars(thing).items()]
