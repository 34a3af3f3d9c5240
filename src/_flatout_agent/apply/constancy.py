"""Whether a module's forward pass does the same at every call, so that it may be recorded once and replayed.

A recording repeats what the device did; what Python did in between happens once. So every function of the script's that the
pass runs is read: it may read numbers of modules, which are watched (`Attributes`), constants of its file, which are looked at
before every replay, and nothing else that could be another one tomorrow. When in doubt the answer is no.
"""

from __future__ import annotations

import builtins
import dis
import gc
import random
import sys
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Callable

from _flatout_agent.patch import Patches, dress

SCALARS = (bool, int, float, complex, str, bytes, type(None))
TRUSTED = ("torch", "math", "operator", "functools", "itertools", "collections", "typing", "einops")
# Everything that is built in, but what speaks to the world, or to what nobody has read.
TELLTALE = {"breakpoint", "compile", "delattr", "eval", "exec", "exit", "globals", "help", "id", "input", "iter", "locals"}
TELLTALE |= {"next", "open", "print", "quit", "setattr", "vars"}
HARMLESS = {name for name in vars(builtins) if name.islower() and not name.startswith("_")} - TELLTALE
CHANGES = ("STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME")
# Said to a tensor these leave the device, or something that is called when nobody replays it.
TELLING = frozenset({"item", "tolist", "cpu", "numpy", "register_hook", "backward", "retain_grad", "random"})
DRAWS = ("random", "_random", "time", "secrets")

Constant = tuple[dict[str, Any], str, Any]  # where it stands, its name, its value


class Calls:
    """The functions that one call runs, outside torch."""

    def __init__(self) -> None:
        self.codes: dict[CodeType, dict[str, Any]] = {}
        self.drew = ""  # a function of the standard library that answers differently every time

    def watch(self, call: Callable[[], Any]) -> Any:
        before, collecting = sys.getprofile(), gc.isenabled()
        gc.disable()  # what it runs at the end of objects is not the pass's own
        sys.setprofile(self._note)
        try:
            return call()
        finally:
            sys.setprofile(before)
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
    constants: list[Constant] = []
    if calls.drew:
        return calls.drew, constants
    inner = {part for code in calls.codes for part in code.co_consts if isinstance(part, CodeType)}
    names: set[str] = set()
    for code, place in calls.codes.items():
        if code not in inner and set(code.co_freevars) - {"__class__"}:
            return f"{code.co_name}: {code.co_freevars[0]}", constants
        for step in dis.get_instructions(code):
            why = _doubt_in_step(step, place, constants)
            if why:
                return f"{code.co_name}: {why}", constants
            if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                names.add(str(step.argval))
    if "getattr" in {name for code in calls.codes for name in code.co_names}:
        names |= {name for module in root.modules() if not _of_torch(type(module)) for name in vars(module)}
    return _doubt_in_attributes(root, names, torch, device_type), constants


def _doubt_in_step(step: Any, place: dict[str, Any], constants: list[Constant]) -> str:
    name = str(step.argval)
    if step.opname in CHANGES or (step.opname in ("LOAD_ATTR", "LOAD_METHOD") and name in TELLING):
        return name
    if step.opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
        return ""
    if name not in place:
        known = getattr(builtins, name, None)
        fine = name in HARMLESS or (isinstance(known, type) and issubclass(known, BaseException))
        return "" if fine else name
    value = place[name]
    if isinstance(value, SCALARS):
        constants.append((place, name, value))
        return ""
    home = value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", "") or "")
    if home.split(".")[0] in TRUSTED and isinstance(value, (ModuleType, type, FunctionType, BuiltinFunctionType)):
        return "" if home != "torch.random" else name
    # A function that is run was read like this one. A class may be a place for numbers.
    return "" if isinstance(value, FunctionType) else name


def _doubt_in_attributes(root: Any, names: set[str], torch: Any, device_type: str) -> str:
    """Numbers of a module that the pass reads are watched; what can change from inside is not."""
    for module in root.modules():
        for name in names & set(vars(module)):
            if not name.startswith("_") and not _settled(vars(module)[name], torch, device_type):
                return f"{type(module).__name__}.{name}"
        for kind in type(module).__mro__:
            if _of_torch(kind) or kind is object:
                break
            for name in names & set(vars(kind)):
                if not name.startswith("__") and isinstance(vars(kind)[name], (list, dict, set, float, int)):
                    return f"{kind.__name__}.{name}"  # of the class: nobody would see it change
    return ""


def _of_torch(kind: type) -> bool:
    return kind.__module__.split(".")[0] == "torch"


def _settled(value: Any, torch: Any, device_type: str) -> bool:
    if isinstance(value, tuple):
        return all(_settled(part, torch, device_type) for part in value)
    if isinstance(value, torch.Tensor):
        return bool(value.device.type == device_type) and not value.requires_grad
    kinds = (torch.nn.Module, torch.dtype, torch.device, torch.Size, FunctionType, BuiltinFunctionType, type)
    return isinstance(value, (*SCALARS, *kinds))


class Attributes:
    """Notices that a module was given another attribute than it had; cheap where that is rare."""

    def __init__(self, torch: Any) -> None:
        self.version = 0
        self._patches = Patches()
        kind = torch.nn.Module
        original = kind.__setattr__

        def __setattr__(module: Any, name: str, value: Any) -> None:
            held = vars(module)
            before = held.get(name, held)
            original(module, name, value)
            if value is not before and not (type(value) is type(before) and type(value) in SCALARS and value == before):
                self.version += 1

        self._patches.put(kind, "__setattr__", dress(__setattr__, original))

    def take_off(self) -> None:
        self._patches.take_off()


def numbers_of(root: Any) -> list[Any]:
    """What modules hold beside their tensors and parts, to be compared."""
    found: list[Any] = []
    for module in root.modules():
        found.append(id(module))
        for name, value in vars(module).items():
            if not name.startswith("_") or isinstance(value, SCALARS):
                found.append((name, value if isinstance(value, SCALARS) else id(value)))
    return found


def unchanged(constants: list[Constant]) -> bool:
    return all(place.get(name) is value for place, name, value in constants)
