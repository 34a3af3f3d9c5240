"""Attributes of torch that are replaced, and put back as they were."""

from __future__ import annotations

from typing import Any, Callable

from _flatout_agent.guard import fault

_ABSENT = object()


class Patches:
    """Remembers what stood where, so that everything can be lifted for a while, or taken off without a trace."""

    def __init__(self) -> None:
        self._places: list[tuple[Any, str, Any, Any]] = []
        self._undo: list[Callable[[], None]] = []
        self.resting = False

    def put(self, owner: Any, name: str, value: Any) -> None:
        self._places.append((owner, name, vars(owner).get(name, _ABSENT), value))
        setattr(owner, name, value)

    def on_take_off(self, undo: Callable[[], None]) -> None:
        self._undo.append(undo)

    def lift(self) -> None:
        """Everything as it was, until `put_back`."""
        for owner, name, before, value in reversed(self._places):
            if vars(owner).get(name, _ABSENT) is not value:
                continue  # somebody else has put something over ours, or it is lifted already
            if before is _ABSENT:
                delattr(owner, name)  # it was inherited: the class shows its parent's again
            else:
                setattr(owner, name, before)

    def put_back(self) -> None:
        if self.resting:
            return
        for owner, name, before, value in self._places:
            if vars(owner).get(name, _ABSENT) is before:
                setattr(owner, name, value)

    def put_over(self) -> None:
        """The same, over whatever is there by now: what was underneath may have been laid aside meanwhile."""
        for index, (owner, name, _, value) in enumerate(self._places):
            now = vars(owner).get(name, _ABSENT)
            if now is not value:
                self._places[index] = (owner, name, now, value)
                setattr(owner, name, value)

    def rest(self) -> None:
        """Lifted for longer: `put_back` does nothing until `wake`."""
        self.lift()
        self.resting = True

    def wake(self) -> None:
        self.resting = False
        self.put_back()

    def take_off(self) -> None:
        """What was put over ours goes first: underneath, ours would not be recognised."""
        while self._undo:
            undo = self._undo.pop()
            try:
                undo()
            except Exception as error:  # the others are to go all the same
                fault("patch.undo", error)
        self.lift()
        self._places.clear()


def dress(wrapper: Any, original: Any) -> Any:
    """Give a wrapper function the name, module and documentation of what it stands for."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        if hasattr(original, name):  # methods written in C have no module
            setattr(wrapper, name, getattr(original, name))
    wrapper.__wrapped__ = original
    return wrapper
