"""A call's arguments and what it returns, taken apart into tensors and a layout that puts other tensors in their places."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from _flatout_agent.knobs.nested_tensors import changed_tensors, tensors_in

SCALARS = (bool, int, float, complex, str, bytes, type(None))
TENSOR = object()  # in the place of one

Layout = Tuple[Tuple[Any, ...], Tuple[Tuple[str, Any], ...]]


def taken_apart(torch: Any, args: Any, kwargs: Any) -> Optional[Tuple[list[Any], Layout]]:
    """The tensors and where they stand among plain numbers and texts; None where there is anything else."""
    tensors: list[Any] = []
    places = []
    for name, part in [*((None, part) for part in args), *kwargs.items()]:
        if type(part) is torch.Tensor:
            tensors.append(part)
            places.append((name, TENSOR))
        elif type(part) in SCALARS:
            places.append((name, (type(part), part)))  # 1 and True are equal, and are not the same
        else:
            return None
    positional = tuple(place for name, place in places if name is None)
    return tensors, (positional, tuple((name, place) for name, place in places if name is not None))


def put_together(layout: Layout, tensors: Any) -> tuple[list[Any], dict[str, Any]]:
    """Arguments for a call of this layout."""
    left = iter(tensors)
    positional, named = layout
    args = [next(left) if place is TENSOR else place[1] for place in positional]
    return args, {name: next(left) if place is TENSOR else place[1] for name, place in named}


class Returned:
    """What a module returned: its tensors, and copies of the same structure with others in their places."""

    def __init__(self, torch: Any, value: Any) -> None:
        self._torch = torch
        self.tensors = tensors_in(torch, value)
        self._structure = changed_tensors(torch, value, lambda tensor: tensor.detach())

    def with_tensors(self, tensors: Any) -> Any:
        left = iter(tensors)
        return changed_tensors(self._torch, self._structure, lambda _: next(left))


def can_be_rebuilt(torch: Any, value: Any, depth: int = 4) -> bool:
    """Whether a copy with other tensors is as good as the value itself: plain containers, tensors, numbers and texts."""
    if type(value) in SCALARS or type(value) is torch.Tensor:
        return True
    if depth == 0:
        return False
    if isinstance(value, (list, tuple)):
        plain = type(value) in (list, tuple) or hasattr(value, "_fields")
        return plain and all(can_be_rebuilt(torch, part, depth - 1) for part in value)
    return type(value) is dict and all(can_be_rebuilt(torch, part, depth - 1) for part in value.values())
