"""A module's class exchanged for a dynamic subclass whose `__call__` runs what the knobs put around the forward pass.

Not `forward`: an overridden one is never called where a framework has put its own on the instance, breaks pickling and
signatures; and not an attribute of the instance, which a deep copy would share with its original. Seen from outside
nothing changes: name, `isinstance`, `__class__`, copies and pickles are the base class's.
"""

from __future__ import annotations

import dis
from types import CodeType, FunctionType
from typing import Any, Callable, Iterator
from weakref import ref

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.knobs.state_snapshot import Snapshot

Run = Callable[[Any, Any, Any], Any]  # (module, args, kwargs) -> what the module returns

TRIAL_CALLS = 2  # so many calls after a change can be undone: random state and buffers are kept

_SET_CLASS = object.__dict__["__class__"].__set__


class Layer:
    """What one knob puts around a module's forward pass. Lower ranks are further out."""

    rank = 0
    compiles = False  # what is inside is compiled code, which must not be looked into
    fault = ""  # why it was dropped, where it was

    def wrap(self, inner: Run) -> Run:
        raise NotImplementedError

    def evaluation(self, inner: Run) -> Run | None:
        """What it puts around a call in evaluation mode without gradients; None leaves that plain."""
        return None

    def looks(self) -> bool:
        """Whether it wants to look into the next call: that one is not made by compiled code, which shows nothing."""
        return False

    def abandon(self) -> bool:
        """A call failed: put back what is beyond the call itself. True where that means off for good."""
        return False


class Outfit:
    """The layers that one module wears."""

    def __init__(self, torch: Any, module: Any) -> None:
        self._torch = torch
        self.base = type(module)
        self.module = ref(module)
        self.layers: list[Layer] = []
        self.trials = 0
        self._run: Run = self._plain
        self.evaluation: Run | None = None  # of a call in evaluation mode without gradients, where it is not plain
        self._open_run: Run | None = None  # the same without what compiles, while one of them wants to look inside
        self._dressed = _dressed_class(torch, self)

    def wear(self, layer: Layer) -> None:
        self.layers.append(layer)
        self.layers.sort(key=lambda worn: worn.rank)
        self._arrange()
        module = self.module()
        if module is not None and type(module) is self.base:
            _SET_CLASS(module, self._dressed)

    def drop(self, layer: Layer) -> None:
        if layer in self.layers:
            self.layers.remove(layer)
            self._arrange()
        if not self.layers:
            self._undress()

    def is_worn(self) -> bool:
        """A script that sets the class itself (parametrisations do) has taken ours off; one that drops the module has not."""
        module = self.module()
        return module is None or type(module) is self._dressed

    def call(self, module: Any, args: Any, kwargs: Any) -> Any:
        if module is not self.module():
            _SET_CLASS(module, self.base)  # made by a `__deepcopy__` or a constructor call of the script's own
            return self._plain(module, args, kwargs)
        before = None
        if self.trials:
            self.trials -= 1
            before = Snapshot(self._torch, module)
        run = self._run
        if self._open_run is not None:
            if any(layer.looks() for layer in self.layers):
                run = self._open_run
            else:
                self._open_run = None
        try:
            return run(module, args, kwargs)
        except Exception as error:
            raised = error
        # Outside the handler, or an error of the script's own would show ours as its context.
        if before is not None:
            before.restore()
        return self._fall_back(raised, module, args, kwargs)

    def evaluate(self, module: Any, args: Any, kwargs: Any) -> Any:
        run = self.evaluation
        if run is None or module is not self.module():
            return self._plain(module, args, kwargs)
        try:
            return run(module, args, kwargs)
        except Exception as error:
            self.evaluation = None
            fault("apply.evaluate", error)
        return self._plain(module, args, kwargs)

    def _fall_back(self, error: Exception, module: Any, args: Any, kwargs: Any) -> Any:
        """Plain from now on. An error of the script's own is raised again by the plain call, and was not ours."""
        layers, self.layers = self.layers, []
        self._undress()
        error.__traceback__ = None  # it holds the activations of the failed call
        kept = [layer for layer in layers if not layer.abandon()]
        try:
            answer = self._plain(module, args, kwargs)
        except Exception:
            for layer in kept:
                self.wear(layer)
            raise
        finally:
            for layer in layers:
                if layer not in self.layers:
                    layer.fault = f"{type(error).__name__}: {error}"[:300]
        fault("apply.call", error)
        return answer

    def _plain(self, module: Any, args: Any, kwargs: Any) -> Any:
        return self.base.__call__(module, *args, **kwargs)

    def _arrange(self) -> None:
        self._run = self._chain(self.layers)
        self.evaluation = next(filter(None, (layer.evaluation(self._plain) for layer in self.layers)), None)
        opened = [layer for layer in self.layers if not layer.compiles]
        self._open_run = self._chain(opened) if len(opened) < len(self.layers) else None
        self.trials = TRIAL_CALLS if self.layers else 0

    def _chain(self, layers: list[Layer]) -> Run:
        run: Run = self._plain
        for layer in reversed(layers):
            inner, run = run, layer.wrap(run)
            run.compiled = layer.compiles or getattr(inner, "compiled", False)  # type: ignore[attr-defined]
        return run

    def _undress(self) -> None:
        module = self.module()
        if module is not None and type(module) is self._dressed:
            _SET_CLASS(module, self.base)


class Wardrobe:
    """The outfits of a scene, by module: several knobs on one module share its outfit."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._outfits: dict[int, Outfit] = {}

    def outfit(self, module: Any) -> Outfit:
        outfit = self._outfits.get(id(module))
        if outfit is None or outfit.module() is not module:
            outfit = self._outfits[id(module)] = Outfit(self._torch, module)
        elif not outfit.layers and type(module) is not outfit.base:
            outfit = self._outfits[id(module)] = Outfit(self._torch, module)  # the script changed its class meanwhile
        return outfit

    def obstacle(self, module: Any) -> tuple[str, dict[str, Any]] | None:
        """Why a module's class cannot be exchanged, if it cannot."""
        if isinstance(module, self._torch.jit.ScriptModule):
            return "scripted-module", {"module": type(module).__name__}
        worn = self._outfits.get(id(module))
        base = worn.base if worn is not None and worn.is_worn() else type(module)
        where = _super_of_own_type(base)
        if where:
            return "uses-super-type-self", {"module": base.__name__, "method": where}
        return None


def _dressed_class(torch: Any, outfit: Outfit) -> Any:
    base = outfit.base
    is_grad_enabled = torch.is_grad_enabled
    is_compiling = getattr(torch.compiler, "is_compiling", None) or (lambda: False)
    base_call = base.__call__
    reduce_ex: Any = base.__reduce_ex__
    call = outfit.call

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A module that the script's own torch.compile traces runs plain, and so do evaluation and what needs no gradient, but
        # for layers that leave every bit of an evaluation as it is.
        if is_compiling():
            return base_call(self, *args, **kwargs)
        if self.training and is_grad_enabled():
            return call(self, args, kwargs)
        if outfit.evaluation is None or self.training or is_grad_enabled():
            return base_call(self, *args, **kwargs)
        return outfit.evaluate(self, args, kwargs)

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        """As the base class: what is pickled or copied has never heard of us."""
        reduced = reduce_ex(self, protocol)
        if isinstance(reduced, tuple):
            function = base if reduced[0] is dressed else reduced[0]
            arguments = tuple(base if part is dressed else part for part in reduced[1])
            reduced = (function, arguments, *reduced[2:])
        return reduced

    def shown(self: Any) -> Any:
        return base

    members = {
        "__call__": __call__,
        "__reduce_ex__": __reduce_ex__,
        # pickle compares this with the class it is told to make
        "__class__": property(shown, lambda self, other: _SET_CLASS(self, other)),
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
    }
    dressed = _subclass_quietly(base, members)
    return dressed


def _subclass_quietly(base: Any, members: dict[str, Any]) -> Any:
    """A subclass that no registry hears of: neither the metaclass's constructor nor `__init_subclass__` is run."""
    own = [(parent, vars(parent)["__init_subclass__"]) for parent in base.__mro__[:-1] if "__init_subclass__" in vars(parent)]
    try:
        for parent, _ in own:
            parent.__init_subclass__ = classmethod(lambda cls, **_: None)
        return type.__new__(type(base), base.__name__, (base,), members)
    finally:
        for parent, method in own:
            parent.__init_subclass__ = method


def _super_of_own_type(base: Any) -> str:
    """The method that calls `super(type(self), self)`: in a subclass it would call itself for ever."""
    for parent in base.__mro__:
        if parent.__module__.startswith("torch.nn.") or parent is object:
            continue
        for name, member in vars(parent).items():
            for code in _codes(member):
                if _takes_super_of_type(code):
                    return f"{parent.__qualname__}.{name}"
    return ""


def _codes(member: Any) -> Iterator[CodeType]:
    for function in (member, getattr(member, "__func__", None), getattr(member, "fget", None)):
        function = getattr(function, "__wrapped__", function)
        if isinstance(function, FunctionType):
            yield from _with_inner(function.__code__)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def _takes_super_of_type(code: CodeType) -> bool:
    if "super" not in code.co_names or "type" not in code.co_names:
        return False
    names = [
        str(step.argval)
        for step in dis.get_instructions(code)
        if step.opname.startswith(("LOAD_GLOBAL", "LOAD_FAST", "LOAD_DEREF"))
    ]
    return any(name == "super" and names[place + 1 : place + 2] == ["type"] for place, name in enumerate(names))
