"""Whether a module's forward pass does the same at every call, so that it may be recorded once and replayed.

A recording repeats what the device did; what Python did in between happens once. So every function of the script's that the
pass runs is read: it may read numbers of modules and of its file, which are looked at before every replay, and nothing else
that could be another one tomorrow. When in doubt the answer is no.
"""

from __future__ import annotations

import builtins
import dataclasses
import dis
import gc
import random
import sys
from argparse import Namespace
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, Callable

SCALARS = (bool, int, float, complex, str, bytes, type(None))
TRUSTED = ("torch", "math", "operator", "functools", "itertools", "collections", "typing", "einops")
# Everything that is built in, but what speaks to the world, or to what nobody has read.
TELLTALE = {"breakpoint", "compile", "delattr", "eval", "exec", "exit", "globals", "help", "id", "input", "iter", "locals"}
TELLTALE |= {"next", "open", "print", "quit", "setattr", "vars"}
HARMLESS = {name for name in vars(builtins) if name.islower() and not name.startswith("_")} - TELLTALE
CHANGES = ("STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME")
READS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD")
# Said to a tensor these leave the device, or something that is called when nobody replays it.
TELLING = {"item", "tolist", "cpu", "numpy", "register_hook", "backward", "retain_grad", "random", "pin_memory", "__dict__"}
DRAWS = ("random", "_random", "time", "secrets")
UNUSUAL = {"__slots__", "__getattr__", "__getattribute__"}  # in a class whose objects are not what they hold
METHODS = (FunctionType, property, classmethod, staticmethod)

Constant = tuple[dict[str, Any], str, Any]  # where it stands, its name, its value


class Calls:
    """The functions that one call runs, outside torch."""

    def __init__(self) -> None:
        self.codes: dict[CodeType, dict[str, Any]] = {}
        self.drew = ""  # a function of the standard library that answers differently every time

    def watch(self, call: Callable[[], Any]) -> Any:
        """Only where nobody else profiles: there can be one."""
        collecting = gc.isenabled()
        gc.disable()  # what it runs at the end of objects is not the pass's own
        sys.setprofile(self._note)
        try:
            return call()
        finally:
            sys.setprofile(None)
            if collecting:
                gc.enable()

    def _note(self, frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            if not _trusted(frame):
                self.codes.setdefault(frame.f_code, frame.f_globals)
        elif event == "c_call" and not self.drew:
            home = getattr(argument, "__module__", None) or type(getattr(argument, "__self__", None)).__module__
            if home in DRAWS and not _trusted(frame):
                self.drew = str(getattr(argument, "__qualname__", argument))


def _trusted(frame: Any) -> bool:
    return str(frame.f_globals.get("__name__", "")).split(".")[0] in (*TRUSTED, "_flatout_agent")


class Draws:
    """The random generators of the host, as they stand: a draw of theirs would be the same in every replay."""

    def __init__(self, torch: Any, device_type: str) -> None:
        self._torch = torch if device_type != "cpu" else None  # there it is the device's own, which a replay draws from
        self._before = self._now()

    def seen(self) -> bool:
        return self._now() != self._before

    def _now(self) -> list[Any]:
        numpy = sys.modules.get("numpy")
        theirs = [part if isinstance(part, SCALARS) else part.tobytes() for part in numpy.random.get_state()] if numpy else []
        return [random.getstate(), self._torch and bytes(self._torch.get_rng_state().tolist()), theirs]


def doubt(calls: Calls, root: Any, torch: Any, device_type: str) -> tuple[str, list[Constant]]:
    """(what may be different at another call, the constants that are relied upon); the first is empty where nothing may."""
    constants: dict[tuple[int, str], Constant] = {}
    names: set[str] = set()
    why = calls.drew or _doubt_in_codes(calls, constants, names)
    if not why:
        modules = list(root.modules())
        if "getattr" in {name for code in calls.codes for name in code.co_names}:
            names |= {name for module in modules if not _of_torch(type(module)) for name in vars(module)}
        own = {id(module) for module in modules}
        found = (_doubt_in_module(module, names, constants, Settled(torch, device_type, own)) for module in modules)
        kinds = {kind for module in modules for kind in type(module).__mro__ if not _of_torch(kind) and kind is not object}
        why = next(filter(None, found), "") or next(filter(None, (_doubt_in_class(kind, names, calls) for kind in kinds)), "")
    return why, list(constants.values())


def _doubt_in_codes(calls: Calls, constants: dict[tuple[int, str], Constant], names: set[str]) -> str:
    inner = {part for code in calls.codes for part in code.co_consts if isinstance(part, CodeType)}
    for code, place in calls.codes.items():
        if code not in inner and set(code.co_freevars) - {"__class__"}:
            return f"{code.co_name}: {code.co_freevars[0]}"
        for step in dis.get_instructions(code):
            why = _doubt_in_step(step, place, constants)
            if why:
                return f"{code.co_name}: {why}"
            if step.opname in READS:
                names.add(str(step.argval))
    return ""


def _doubt_in_step(step: Any, place: dict[str, Any], constants: dict[tuple[int, str], Constant]) -> str:
    name = str(step.argval)
    if step.opname in CHANGES or (step.opname in READS and name in TELLING):
        return name
    if step.opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
        return ""
    if name not in place:
        known = getattr(builtins, name, None)
        fine = name in HARMLESS or (isinstance(known, type) and issubclass(known, BaseException))
        return "" if fine else name
    value = place[name]
    constants[id(place), name] = (place, name, value)
    if isinstance(value, SCALARS):
        return ""
    home = value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", "") or "")
    if home.split(".")[0] in TRUSTED and isinstance(value, (ModuleType, type, FunctionType, BuiltinFunctionType)):
        return "" if home != "torch.random" else name
    # A function that is run was read like this one. A class may be a place for numbers.
    return "" if _plain_function(value) else name


def _plain_function(value: Any) -> bool:
    """One that keeps nothing: neither in its defaults nor as an attribute."""
    if not isinstance(value, FunctionType) or vars(value):
        return False
    kept = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
    return all(isinstance(part, SCALARS) for part in kept)


class Settled:
    """Whether a value can be another one only if another one is set."""

    def __init__(self, torch: Any, device_type: str, modules: set[int]) -> None:
        self._torch = torch
        self._device_type = device_type
        self._modules = modules

    def __call__(self, value: Any) -> bool:
        torch = self._torch
        if isinstance(value, tuple):
            return all(map(self, value))
        if isinstance(value, torch.Tensor):
            return bool(value.device.type == self._device_type) and not value.requires_grad
        if isinstance(value, torch.nn.Module):
            return id(value) in self._modules
        if isinstance(value, type):
            return _of_torch(value)
        return isinstance(value, (*SCALARS, torch.dtype, torch.device, BuiltinFunctionType)) or _plain_function(value)


def _doubt_in_module(module: Any, names: set[str], constants: dict[tuple[int, str], Constant], settled: Settled) -> str:
    """Numbers of a module that the pass reads are looked at; what can change from inside is doubted."""
    held = vars(module)
    for name in names & set(held) - bookkeeping(module):
        value = held[name]
        settings = plain_settings(value)
        if isinstance(value, SCALARS):
            constants[id(held), name] = (held, name, value)
        elif settings is not None:
            constants[id(held), name] = (held, name, value)
            constants.update({(id(settings), field): (settings, field, own) for field, own in settings.items()})
        elif not _of_torch(type(module)) and not settled(value):
            return f"{type(module).__name__}.{name}"
    return ""


def plain_settings(value: Any) -> dict[str, Any] | None:
    """The fields of an object that only holds numbers and texts, as a dataclass or the arguments of a command line do."""
    kind = type(value)
    if kind not in (SimpleNamespace, Namespace):
        own = vars(kind)
        computed = any(isinstance(member, property) for member in own.values())
        if computed or not dataclasses.is_dataclass(kind) or not UNUSUAL.isdisjoint(own):
            return None
    fields = vars(value)
    return fields if all(type(field) in SCALARS for field in fields.values()) else None


def _doubt_in_class(kind: type, names: set[str], calls: Calls) -> str:
    """What a class holds nobody would see change; and its own functions may keep something."""
    for name, member in vars(kind).items():
        if name in names and not name.startswith("__") and not isinstance(member, METHODS):
            return f"{kind.__name__}.{name}"
        function = getattr(member, "__func__", getattr(member, "fget", member))
        if isinstance(function, FunctionType) and function.__code__ in calls.codes and not _plain_function(function):
            return f"{kind.__name__}.{name}"
    return ""


def _of_torch(kind: type) -> bool:
    return kind.__module__.split(".")[0] == "torch"


_BOOKKEEPING: set[str] = set()


def bookkeeping(module: Any) -> set[str]:
    """The attributes that every module has."""
    if not _BOOKKEEPING:
        base = next(kind for kind in type(module).__mro__ if kind.__module__ == "torch.nn.modules.module")
        _BOOKKEEPING.update(vars(base()))
    return _BOOKKEEPING


def unchanged(constants: list[Constant]) -> bool:
    return all(same(place.get(name, place), value) for place, name, value in constants)


def same(first: Any, second: Any) -> bool:
    return first is second or (type(first) is type(second) and type(first) in SCALARS and first == second)
