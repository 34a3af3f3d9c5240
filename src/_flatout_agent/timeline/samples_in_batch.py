"""How many samples a batch holds, found without running a line of the script's code.

A batch may compute its values when it is asked for them (a mapping that augments at random): asked once more by us, the
script would draw other random numbers and learn other weights. So only what lies there already is looked at: tensors and
arrays, and what lists, tuples, dicts and dataclasses hold, by Python's own methods and never by their subclasses' ones.
"""

from __future__ import annotations

import sys
from collections import UserDict, UserList
from types import MemberDescriptorType
from typing import Any, Iterable

DEPTH = 4  # containers inside containers that are looked into


def size_of(batch: Any, depth: int = DEPTH) -> int:
    """Length of the first dimension of the first array found; 0 where there is none."""
    kind = type(batch)
    shape = shape_of(batch, kind)
    if shape is not None:
        return int(shape[0]) if len(shape) else 0
    if depth == 0:
        return 0
    for part in parts_of(batch, kind):
        size = size_of(part, depth - 1)
        if size:
            return size
    return 0


def shape_of(thing: Any, kind: type) -> Any:
    """A tensor's or an array's; None for whatever else, and for tensors whose class answers such questions itself."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and is_plain_tensor(torch, kind):
        if kind is torch.Tensor and not torch._C._len_torch_function_stack():
            return thing.shape
        with torch._C.DisableTorchFunction():  # a mode or a class that overrides functions does not hear of it
            return thing.shape
    numpy: Any = sys.modules.get("numpy")
    return thing.shape if kind is getattr(numpy, "ndarray", None) else None


def is_plain_tensor(torch: Any, kind: type) -> bool:
    """Whether a class is the tensor class, or one under it that leaves its operations to torch."""
    tensor = torch.Tensor
    return kind is tensor or (_is_a(kind, tensor) and getattr(kind, "__torch_dispatch__", None) is tensor.__torch_dispatch__)


def parts_of(batch: Any, kind: type) -> Iterable[Any]:
    """What a plain container holds; nothing for whatever else."""
    if kind is list or kind is tuple:
        return batch  # type: ignore[no-any-return]
    if _is_a(kind, dict):
        return dict.values(batch)
    if _is_a(kind, list):
        return list.__iter__(batch)
    if _is_a(kind, tuple):
        return tuple.__iter__(batch)
    if _is_a(kind, UserDict) or _is_a(kind, UserList):  # as Transformers' tokenizers give them
        return (_held(batch, kind, "data"),)
    if any("__dataclass_fields__" in vars(base) for base in kind.__mro__):
        return [_held(batch, kind, name) for name in kind.__dataclass_fields__]  # type: ignore[attr-defined]
    return ()


def _is_a(kind: type, other: type) -> bool:
    """By what it is made of: `isinstance` asks the class, which may be a proxy of something else."""
    return any(base is other for base in kind.__mro__)


def _held(thing: Any, kind: type, name: str) -> Any:
    """An attribute that lies in the object: no property is asked, and no `__getattr__`."""
    for base in kind.__mro__:
        member = vars(base).get(name)
        if type(member) is MemberDescriptorType:
            try:
                return member.__get__(thing, kind)
            except AttributeError:
                return None
    try:
        return object.__getattribute__(thing, "__dict__").get(name)
    except AttributeError:
        return None
