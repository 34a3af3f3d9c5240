"""A checksum of everything that fetching a batch can read in this process, or why it cannot be made.

It goes from the dataset, its collation and the worker's own initialisation through attributes, containers, closures, default
arguments, classes, and the globals that their code names. Two equal checksums mean that fetching gives the same, once the
global random generators have the same seed: workers of the epoch before may go on. What is not understood (an iterator, an
open file, an object of a C library) makes no checksum: then nobody knows, and workers are started anew.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import operator
import pathlib
import random
import sys
import types
import weakref
from typing import Any, Callable, NamedTuple

from _flatout_agent.core.object_numbers import Identities
from _flatout_agent.knobs.loader.reuse.code_walk import CodeWalk, Namespace
from _flatout_agent.knobs.loader.reuse.names_in_code import names_in
from _flatout_agent.knobs.loader.reuse.process_state import changes_calls, process_state
from _flatout_agent.knobs.loader.reuse.restart_reasons import CANNOT_BE_TOLD, Renewal, raised
from _flatout_agent.knobs.loader.reuse.trusted_packages import LOGGING, SHARED, draws, is_constant, is_trusted
from _flatout_agent.knobs.loader.reuse.value_checksum import (
    ATOMS,
    LONG,
    Buffers,
    TooLargeError,
    UnknownError,
    array_told,
    plain_bytes,
    tensor_told,
)
from _flatout_agent.knobs.object_layout import BARE_BASES, MAKING, METACLASSES, NOT_READ, hides_more, slots_of

MOST_VISITS = 6_000


class FetchState(NamedTuple):
    """Equal `checksum`s: fetching gives the same. None: it cannot be told, for this reason."""

    checksum: bytes | None
    unknown: Renewal | None = None
    bytes: int = 0  # of tensors, arrays and long lists that were read for it


def fetch_state(torch: Any, roots: dict[str, Any], numbers: Identities, most_bytes: int) -> FetchState:
    walk = Walk(torch, numbers, most_bytes)
    try:
        return FetchState(walk.checksum(roots), None, walk.buffers.bytes)
    except TooLargeError as where:
        return FetchState(None, Renewal("too-much-to-read", str(where)), walk.buffers.bytes)
    except UnknownError as why:
        return FetchState(None, Renewal(CANNOT_BE_TOLD, str(why)), walk.buffers.bytes)
    except Exception as error:  # an object of the script's that does not let itself be looked at
        return FetchState(None, raised(error), walk.buffers.bytes)


class Walk(CodeWalk):
    """One look at everything. The order in which things are met is the same in every process that was forked from one."""

    def __init__(self, torch: Any, numbers: Identities, most_bytes: int) -> None:
        super().__init__()
        self._torch = torch
        self._numpy = sys.modules.get("numpy")
        self._numbers = numbers
        self.buffers = Buffers(most_bytes)
        self._met: dict[int, int] = {}
        self._alive: list[Any] = []  # so that no identity is given twice while we look

    def checksum(self, roots: dict[str, Any]) -> bytes:
        if changes_calls(self._torch):
            raise UnknownError("torch's functions are changed")
        self._say("process", *process_state(self._torch))
        self._attributes.update(dict.fromkeys(("__getitem__", "__getitems__", "__len__", "__call__")))
        for path, thing in roots.items():
            self._todo.append((path, thing))
        while self._todo:
            if len(self._alive) > MOST_VISITS:
                raise UnknownError("too many objects")
            path, thing = self._todo.pop()
            self._visit(path, thing)
        for package in sorted(self._packages):
            drawing = draws(package, self._attributes)
            if drawing:
                raise UnknownError(f"{package}.{drawing}")
        if self._by_made_name and self._modules_read:
            raise UnknownError("a module is read by names that are made while it runs")
        self._say("contents", *self.buffers.checksums())
        return self._hash.digest()

    # -- what every kind uses --------------------------------------------------------------------------------------

    def _visit(self, path: str, thing: Any) -> None:
        kind = type(thing)
        if kind in ATOMS:
            self._say(kind.__name__, thing)
            return
        known = self._met.get(id(thing))
        if known is not None:
            self._say("again", known)
            return
        self._met[id(thing)] = len(self._met)
        self._alive.append(thing)
        handler = BY_KIND.get(kind)
        if handler is not None:
            handler(self, path, thing)
        elif isinstance(thing, type):
            self._class(path, thing)
        elif is_constant(kind):
            self._say("constant", kind.__name__, repr(thing))
        elif isinstance(thing, self._torch.Tensor):
            self._say("tensor", *tensor_told(self._torch, path, thing, self.buffers), self._number_if_shared(thing))
            self._rest(path, thing, hidden=False)
        elif kind is self._torch.Generator:
            if thing is not self._torch.default_generator:
                self._say("generator", bytes(thing.get_state().numpy()))
        elif self._numpy is not None and kind.__module__.startswith("numpy"):
            self._of_numpy(path, thing)
        else:
            self._object(path, thing)

    def _number_if_shared(self, tensor: Any) -> int:
        return self._numbers.of(tensor) if tensor.is_shared() else 0

    # -- containers ------------------------------------------------------------------------------------------------

    def _sequence(self, path: str, thing: Any) -> None:
        """In the order that a loop would meet, sets too."""
        plain = plain_bytes(thing) if len(thing) > LONG and type(thing) in (list, tuple) else None
        if plain is not None:
            self._say(type(thing).__name__, len(plain))
            self._plain_content(path, plain)
            return
        self._say(type(thing).__name__, len(thing))
        self._add_all(path, thing)

    def _plain_content(self, path: str, content: bytes) -> None:
        self.buffers.count(path, len(content))
        self._hash.update(content)

    def _deque(self, path: str, thing: Any) -> None:
        self._say("deque", len(thing), thing.maxlen)
        self._add_all(path, thing)

    def _mapping(self, path: str, thing: Any) -> None:
        plain = plain_bytes(thing) if len(thing) > LONG and type(thing) is dict else None
        self._say(type(thing).__name__, len(thing), plain is None)
        if plain is not None:
            self._plain_content(path, plain)
            return
        for key, value in thing.items():
            self._add(f"{path}[{key!r}]" if type(key) in ATOMS else f"{path}[…]", value)
            self._add(f"a key of {path}", key)
        if type(thing) is collections.defaultdict:
            self._add(f"{path}.default_factory", thing.default_factory)

    def _plain(self, path: str, thing: Any) -> None:
        self._say(type(thing).__name__, repr(thing))

    # -- code ------------------------------------------------------------------------------------------------------

    def _function(self, path: str, thing: Any) -> None:
        if is_trusted(thing.__globals__.get("__name__")):
            self._say("trusted", thing.__qualname__, self._numbers.of(thing))
            self._add_all(path, thing.__closure__ or ())  # a decorator of theirs around a function of the script's
            return
        self._say("function", self._numbers.of(thing.__code__))
        self._add(f"{path}.__defaults__", thing.__defaults__)
        self._add(f"{path}.__kwdefaults__", thing.__kwdefaults__)
        self._add(f"{path}.__dict__", thing.__dict__)
        self._add_all(path, thing.__closure__ or ())
        self._read(path, names_in(thing.__code__), thing.__globals__)

    def _method(self, path: str, thing: Any) -> None:
        self._say("method")
        self._add(path, thing.__func__)
        self._add(f"{path}.__self__", thing.__self__)

    def _builtin(self, path: str, thing: Any) -> None:
        owner = thing.__self__
        self._say("builtin", thing.__name__)
        if owner is None or isinstance(owner, types.ModuleType):
            module = thing.__module__ or getattr(owner, "__name__", "")
            if not is_trusted(module):
                raise UnknownError(f"{path} is a function of {module}")
            self._packages.add(str(module).partition(".")[0])
            self._names((thing.__name__,))
        else:
            self._add(f"{path}.__self__", owner)

    def _cell(self, path: str, thing: Any) -> None:
        try:
            content = thing.cell_contents
        except ValueError:
            self._say("empty cell")
            return
        self._value(path, content)

    def _partial(self, path: str, thing: Any) -> None:
        self._say("partial")
        for name in ("func", "args", "keywords", "__dict__"):
            self._value(f"{path}.{name}", getattr(thing, name))

    def _cached(self, path: str, thing: Any) -> None:
        """A cache that was asked since is another: what it would give is not what a fresh one would."""
        self._say("cache", tuple(thing.cache_info()))
        self._add(path, thing.__wrapped__)

    def _wrapping(self, path: str, thing: Any) -> None:
        self._say(type(thing).__name__)
        self._add(path, thing.__func__)

    def _property(self, path: str, thing: Any) -> None:
        self._say("property")
        for function in (thing.fget, thing.fset, thing.fdel):
            self._add(path, function)

    def _code(self, path: str, thing: Any) -> None:
        self._say("code", self._numbers.of(thing))

    def _module(self, path: str, thing: Any) -> None:
        name = thing.__name__
        self._say("module", name)
        if is_trusted(name):
            self._packages.add(name.partition(".")[0])
            return
        self._modules_read = True
        self._enter(Namespace(path, vars(thing), lambda name, value: True))

    def _reduced(self, path: str, thing: Any) -> None:
        """Of C code that tells what it was made of."""
        self._say(type(thing).__name__)
        self._add(path, thing.__reduce__())

    def _reference(self, path: str, thing: Any) -> None:
        self._say("reference")
        self._add(path, thing())

    # -- objects ---------------------------------------------------------------------------------------------------

    def _class(self, path: str, kind: type) -> None:
        self._say("class", kind.__module__, kind.__qualname__, self._numbers.of(kind))
        if is_trusted(kind.__module__):
            self._packages.add(kind.__module__.partition(".")[0])
            return
        if type(kind).__name__ not in METACLASSES:
            self._add(f"the metaclass of {path}", type(kind))
        whole = any(is_trusted(base.__module__) and base.__name__ not in BARE_BASES for base in kind.__mro__)

        def by_name(name: str, value: Any) -> bool:
            if name in NOT_READ:
                return True
            if not (callable(value) or isinstance(value, (staticmethod, classmethod, property))):
                return False
            dunder = name.startswith("__") and name.endswith("__")
            return name in MAKING or not (dunder or whole or self._by_made_name)

        self._enter(Namespace(path, vars(kind), by_name))
        self._add_all(f"a base of {path}", kind.__bases__)

    def _object(self, path: str, thing: Any) -> None:
        kind = type(thing)
        module = kind.__module__
        if isinstance(thing, random.Random):
            if thing is not getattr(random, "_inst", None):
                self._say("random", thing.getstate() if kind is not random.SystemRandom else "system")
                self._rest(path, thing, hidden=False)
            return
        if kind.__name__ == "cython_function_or_method" and is_trusted(thing.__module__):
            self._say("compiled", thing.__module__, thing.__qualname__)
        elif isinstance(thing, pathlib.PurePath):
            self._say("path", kind.__name__, str(thing))  # its own attributes are what it remembers of that
        elif module in SHARED:
            self._say("shared", kind.__name__, self._numbers.of(thing))
        elif module.partition(".")[0] == LOGGING:
            self._say("logging", kind.__name__)
        elif isinstance(thing, (ctypes._SimpleCData, ctypes.Array, ctypes.Structure)):
            shared = "_wrapper" in getattr(thing, "__dict__", {})  # of multiprocessing's heap
            self._say("memory", kind.__name__, ctypes.addressof(thing) if shared else bytes(memoryview(thing).cast("B")))
        elif isinstance(thing, (list, tuple, set, frozenset, dict, collections.deque)):
            self._contained(path, thing)
            self._rest(path, thing, hidden=False)
        else:
            self._rest(path, thing, hidden=True)

    def _contained(self, path: str, thing: Any) -> None:
        if isinstance(thing, dict):
            self._say("mapping", len(thing))
            for key, value in dict.items(thing):
                self._add(f"{path}[…]", value)
                self._add(f"a key of {path}", key)
            self._add(f"{path}.default_factory", getattr(thing, "default_factory", None))
        else:
            base = next(one for one in (list, tuple, set, frozenset, collections.deque) if isinstance(thing, one))
            self._say(base.__name__, len(thing))
            self._add_all(path, base.__iter__(thing))

    def _rest(self, path: str, thing: Any, hidden: bool) -> None:
        """Its class and attributes; `hidden`: what lies elsewhere in it was not looked at yet."""
        kind = type(thing)
        slots = [(base, name) for base in kind.__mro__ for name in slots_of(base)]
        if hidden and hides_more(kind, len(slots)):
            raise UnknownError(f"{path} ({kind.__module__}.{kind.__qualname__})")
        self._say("object", len(slots))
        for base, name in slots:
            descriptor = vars(base).get(name)
            if isinstance(descriptor, types.MemberDescriptorType):
                try:
                    self._value(f"{path}.{name}", descriptor.__get__(thing, kind))
                except AttributeError:
                    self._say("no such slot")
        attributes = getattr(thing, "__dict__", None)
        if isinstance(attributes, dict):
            self._say("attributes", len(attributes))
            for name, value in list(attributes.items()):
                self._say(name)
                self._value(f"{path}.{name}", value)
        if kind is not self._torch.Tensor:
            self._add(f"the class of {path}", kind)

    def _of_numpy(self, path: str, thing: Any) -> None:
        numpy, name = self._numpy, type(thing).__name__
        assert numpy is not None
        if isinstance(thing, numpy.ndarray):
            if type(thing) is numpy.ndarray and thing.dtype.kind == "O" and thing.flags.c_contiguous:
                self._say("array", thing.shape)
                self._sequence(path, thing.ravel().tolist())
                return
            mapped = type(thing) is numpy.memmap
            self._say("array", *array_told(numpy, path, thing, self.buffers), self._numbers.of(thing) if mapped else 0)
        elif isinstance(thing, numpy.generic) and not isinstance(thing, numpy.void):
            self._say(name, thing.tobytes() if name != "object_" else repr(thing))
        elif name in ("Generator", "RandomState"):
            if thing is not numpy.random.mtrand._rand:
                self._say(name)
                bits = thing.bit_generator if name == "Generator" else thing._bit_generator
                self._say(getattr(getattr(bits, "seed_seq", None), "n_children_spawned", 0))
                self._add(path, bits.state)
        elif name == "_ArrayFunctionDispatcher" and is_trusted(thing.__module__):
            self._say(name, thing.__module__, thing.__qualname__)
        else:
            self._rest(path, thing, hidden=True)


BY_KIND: dict[type, Callable[[Walk, str, Any], None]] = {
    list: Walk._sequence,
    tuple: Walk._sequence,
    set: Walk._sequence,
    frozenset: Walk._sequence,
    dict: Walk._mapping,
    types.MappingProxyType: Walk._mapping,
    collections.OrderedDict: Walk._mapping,
    collections.defaultdict: Walk._mapping,
    collections.Counter: Walk._mapping,
    collections.deque: Walk._deque,
    bytearray: Walk._plain,
    range: Walk._plain,
    slice: Walk._plain,
    types.FunctionType: Walk._function,
    types.MethodType: Walk._method,
    types.BuiltinFunctionType: Walk._builtin,
    types.MethodWrapperType: Walk._builtin,
    types.CellType: Walk._cell,
    types.CodeType: Walk._code,
    types.ModuleType: Walk._module,
    functools.partial: Walk._partial,
    functools._lru_cache_wrapper: Walk._cached,
    staticmethod: Walk._wrapping,
    classmethod: Walk._wrapping,
    property: Walk._property,
    weakref.ref: Walk._reference,
    operator.itemgetter: Walk._reduced,
    operator.attrgetter: Walk._reduced,
    operator.methodcaller: Walk._reduced,
}
