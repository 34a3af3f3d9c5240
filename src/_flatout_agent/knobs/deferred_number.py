"""A number that is still on its way from the device: whoever asks for it waits, as `.item()` would have.

Sums and products with plain numbers wait with it, and are done in the order and the precision in which Python would have done
them. Any other use gives a plain number.
"""

from __future__ import annotations

import operator
import sys
from typing import Any, Callable

MOST_PARTS = 256  # of a sum: then it is waited for, so that a long epoch keeps no long list

_PLAIN = (int, float)  # exactly these: a bool, a tensor, an array has rules of its own


class Later:
    """Either a value on the device, perhaps times or over a number, or a sum of such."""

    __slots__ = ("_number", "_parts", "_scaled", "_tensor", "_waits")

    __array_ufunc__ = None  # numpy leaves the operation to us

    def __init__(self, tensor: Any, waits: Callable[[], None], scaled: Any = None, parts: Any = None) -> None:
        self._tensor = tensor
        self._waits = waits
        self._scaled = scaled  # (operation, other, whether the other stands first)
        self._parts: list[Any] | None = parts
        self._number: Any = None

    def number(self) -> Any:
        if self._number is None:
            self._waits()
            self._number = self._sum() if self._parts is not None else self._scale(self._tensor.tolist())
            self._tensor = self._parts = None
        return self._number

    def _scale(self, value: Any) -> Any:
        if self._scaled is None:
            return value
        operation, other, first = self._scaled
        return operation(other, value) if first else operation(value, other)

    def _sum(self) -> Any:
        parts: list[Any] = self._parts or []
        arrive([part for part in parts if isinstance(part, Later)])
        total = _plain(parts[0])
        for part in parts[1:]:
            total = total + _plain(part)
        return total

    def _waiting(self) -> bool:
        return self._number is None

    def _times(self, operation: Any, other: Any, first: bool) -> Any:
        if type(other) in _PLAIN and self._waiting() and self._parts is None and self._scaled is None:
            return Later(self._tensor, self._waits, (operation, other, first))
        value = self.number()
        return operation(other, value) if first else operation(value, other)

    def __mul__(self, other: Any) -> Any:
        return self._times(operator.mul, other, False)

    def __rmul__(self, other: Any) -> Any:
        return self._times(operator.mul, other, True)

    def __truediv__(self, other: Any) -> Any:
        return self._times(operator.truediv, other, False)

    def __radd__(self, other: Any) -> Any:
        if type(other) in _PLAIN and self._waiting():
            return Later(None, self._waits, parts=[other, self])
        return other + self.number()

    def __iadd__(self, other: Any) -> Any:
        """In place: nobody else holds a number that is kept under one name only."""
        if not isinstance(other, Later) or not self._waiting():
            return self.number() + other
        if self._parts is None:
            return Later(None, self._waits, parts=[self, other])
        self._parts.append(other)
        if len(self._parts) >= MOST_PARTS:
            return self.number()
        return self

    def __bool__(self) -> bool:
        return bool(self.number())

    def __hash__(self) -> int:
        return hash(self.number())

    def __reduce__(self) -> Any:
        return float, (self.number(),)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.number(), name)


def arrive(several: list[Later]) -> None:
    """All that are alike in one copy from the device, where each alone would be one."""
    alike: dict[Any, list[Later]] = {}
    for one in several:
        if one._number is None and one._parts is None:
            alike.setdefault((one._tensor.dtype, one._tensor.device), []).append(one)
    for group in alike.values():
        values = sys.modules["torch"].stack([one._tensor for one in group]).tolist()
        for one, value in zip(group, values):  # noqa: B905
            one._number, one._tensor = one._scale(value), None


def _plain(thing: Any) -> Any:
    return thing.number() if isinstance(thing, Later) else thing


def _asks(name: str) -> Any:
    """A method of plain numbers, which first waits for this one."""

    def method(self: Later, *args: Any) -> Any:
        return getattr(self.number(), name)(*map(_plain, args))

    method.__name__ = name
    return method


_ARITHMETIC = ("add", "sub", "floordiv", "mod", "divmod", "pow", "rsub", "rtruediv", "rfloordiv", "rmod", "rdivmod", "rpow")
_COMPARING = ("eq", "ne", "lt", "le", "gt", "ge")
_SINGLE = ("neg", "pos", "abs", "float", "int", "round", "trunc", "floor", "ceil", "str", "repr", "format")

for _name in (*_ARITHMETIC, *_COMPARING, *_SINGLE):
    setattr(Later, f"__{_name}__", _asks(f"__{_name}__"))
