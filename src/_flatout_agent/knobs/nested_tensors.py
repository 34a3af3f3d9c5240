"""The tensors inside what a module takes or returns."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, Callable

DEPTH = 6


def changed_tensors(torch: Any, thing: Any, change: Callable[[Any], Any], depth: int = DEPTH) -> Any:
    """The same structure with each tensor changed; the very same object where nothing was."""
    if isinstance(thing, torch.Tensor):
        return change(thing)
    if depth == 0 or thing is None or isinstance(thing, (str, bytes, int, float)):
        return thing
    if isinstance(thing, (list, tuple)):
        parts = [changed_tensors(torch, part, change, depth - 1) for part in thing]
        if all(new is old for new, old in zip(parts, thing)):  # noqa: B905
            return thing
        if isinstance(thing, tuple):
            return type(thing)(*parts) if hasattr(thing, "_fields") else tuple(parts)
        return parts if type(thing) is list else type(thing)(parts)
    if isinstance(thing, Mapping):
        return _changed_mapping(torch, thing, change, depth)
    if dataclasses.is_dataclass(thing):
        return _changed_attributes(torch, thing, [field.name for field in dataclasses.fields(thing)], change, depth)
    return thing


def _changed_mapping(torch: Any, thing: Any, change: Callable[[Any], Any], depth: int) -> Any:
    parts = {key: changed_tensors(torch, part, change, depth - 1) for key, part in thing.items()}
    different = {key: part for key, part in parts.items() if part is not thing[key]}
    if not different:
        return thing
    if type(thing) is dict:
        return parts
    twin = copy.copy(thing)  # keeps the class and whatever else it carries (model outputs of Transformers)
    for key, part in different.items():
        twin[key] = part
    return twin


def _changed_attributes(torch: Any, thing: Any, names: list[str], change: Callable[[Any], Any], depth: int) -> Any:
    parts = {name: changed_tensors(torch, getattr(thing, name), change, depth - 1) for name in names}
    different = {name: part for name, part in parts.items() if part is not getattr(thing, name)}
    if not different:
        return thing
    twin = copy.copy(thing)
    for name, part in different.items():
        object.__setattr__(twin, name, part)
    return twin


def tensors_in(torch: Any, thing: Any) -> list[Any]:
    found: list[Any] = []

    def note(tensor: Any) -> Any:
        found.append(tensor)
        return tensor

    changed_tensors(torch, thing, note)
    return found
