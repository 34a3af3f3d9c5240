"""Attributes of torch that are replaced, and put back as they were."""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any, Callable

from _flatout_agent.core.fault_guard import fault

_ABSENT = object()


class Patches:
    """Remembers what stood where, so that everything can be lifted for a while, or taken off without a trace."""

    def __init__(self) -> None:
        self._places: list[tuple[Any, str, Any, Any]] = []
        self._undo: list[Callable[[], None]] = []
        self.resting = False
        self.withheld = False

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
        if self.resting or self.withheld:
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

    def withhold(self) -> None:
        """Lifted until `withheld` is taken back, whether resting or awake."""
        self.lift()
        self.withheld = True

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


# What `functools.wraps` copies, and what those read who do not follow `__wrapped__`: `inspect.getfullargspec`, command
# lines that are built from signatures (jsonargparse, LightningCLI).
_COPIED = (
    *("__module__", "__name__", "__qualname__", "__doc__", "__type_params__"),
    "__annotate__" if sys.version_info >= (3, 14) else "__annotations__",
)
_DEFAULTS = ("__defaults__", "__kwdefaults__")

# `warnings.warn(…, stacklevel=2)` counts frames, and Python passes over those of its import system, which it knows by these
# two words in the name of their file. A warning of torch's then names the script's line, as it would without us.
PASSED_OVER = " (importlib._bootstrap)"
_passed_over: dict[tuple[str, int, str], CodeType] = {}


def dress(wrapper: Any, original: Any) -> Any:
    """Give a wrapper function the name, documentation and signature of what it stands for; warnings do not name it."""
    for name in _COPIED:
        if hasattr(original, name):  # methods written in C have no module
            setattr(wrapper, name, getattr(original, name))
    code = wrapper.__code__
    if not code.co_argcount and not code.co_kwonlyargcount:  # else Python would fill our own parameters from them
        for name in _DEFAULTS:
            setattr(wrapper, name, getattr(original, name, None))
    signature = _signature_of(original)
    if signature is not None:
        wrapper.__signature__ = signature
    wrapper.__code__ = passed_over(code)
    wrapper.__wrapped__ = original
    return wrapper


def passed_over(code: CodeType) -> CodeType:
    """The same code, always the same object for it, in a file that warnings pass over."""
    if PASSED_OVER in code.co_filename:
        return code
    key = (code.co_filename, code.co_firstlineno, code.co_name)
    known = _passed_over.get(key)
    if known is None:
        name = code.co_filename.removesuffix(".py") + PASSED_OVER + ".py"
        known = _passed_over[key] = code.replace(co_filename=name)
    return known


def _signature_of(original: Any) -> Any:
    inspect = sys.modules.get("inspect")  # torch has imported it; before that, nothing is dressed
    try:
        return inspect.signature(original) if inspect is not None else None
    except (TypeError, ValueError):  # written in C
        return None


def leave_us_out(error: BaseException) -> None:
    """Called where a wrapper caught it, before a bare `raise`: the traceback goes on without the wrapper's line.

    From Python 3.11 on; before, `raise` remembers a traceback of its own.
    """
    try:
        trace = error.__traceback__
        if trace is not None:
            # Not by assignment: an exception's class may have its own idea of attributes.
            BaseException.__dict__["__traceback__"].__set__(error, trace.tb_next)
    except Exception as ours:  # the script's own exception goes on
        fault("patch.leave_us_out", ours)
