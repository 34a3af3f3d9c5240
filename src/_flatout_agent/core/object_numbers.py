"""Numbers for objects of the script's: nothing is written onto them, and they are not kept alive."""

from __future__ import annotations

from typing import Any
from weakref import ref


class Identities:
    """A number for each object, never given again: `id()` alone may soon be another's."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self._references: dict[int, Any] = {}
        self._last = 0

    def of(self, thing: Any) -> int:
        number = self.numbers.get(id(thing))
        return self._meet(thing) if number is None else number

    def _meet(self, thing: Any) -> int:
        key = id(thing)

        def gone(_: Any) -> None:
            self.numbers.pop(key, None)
            self._references.pop(key, None)

        try:
            self._references[key] = ref(thing, gone)
        except TypeError:
            pass  # a plain list as a dataset: it has to do with its id
        self._last += 1
        self.numbers[key] = self._last
        return self._last
