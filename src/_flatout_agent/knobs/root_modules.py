"""Which modules a training step calls from outside any other: the roots that knobs are put on.

A global pre-hook on modules sees the first steps and goes again: while it is there each module call costs several times
more, and `torch.compile` traces it.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.module_hooks import put_on
from _flatout_agent.core.patches import Patches, dress

WHOLE_STEPS = 3


class RootFinder:
    """Watches the calls of a few whole steps. `step_ended` at each step's end; `done` once enough was seen."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._inside: ref[Any] | None = None  # the root whose call is under way
        self._seen: dict[int, tuple[ref[Any], int]] = {}
        self._steps = -1  # the step under way when the hook comes on is not a whole one
        self.autocast_seen = False
        self.compiled_seen = False
        self.double_backward_seen = False  # a gradient that is itself to be differentiated
        self.graph_kept_seen = False  # a graph that is to be gone backward through once more
        self.calls_a_step = 0  # the most calls of one root between two steps
        self.done = False
        self._on_backward = Patches()

    def begin(self) -> None:
        self._hooks = put_on(self._entered, self._left)
        if hasattr(self._torch.autograd, "_engine_run_backward"):  # what `backward` and `grad` both call, by name
            original = self._torch.autograd._engine_run_backward
            self._on_backward.put(self._torch.autograd, "_engine_run_backward", self._noted_backward(original))
        self._counts: dict[int, int] = {}
        self._is_compiling = getattr(self._torch.compiler, "is_compiling", None) or (lambda: False)

    def step_ended(self) -> None:
        self._steps += 1
        self._inside = None
        if self._steps > 0 and self._counts:
            self.calls_a_step = max(self.calls_a_step, *self._counts.values())
        self._counts.clear()
        if self._steps >= WHOLE_STEPS:
            self.end()

    def end(self) -> None:
        self._on_backward.take_off()
        self._hooks.take_off()
        self.done = True

    def roots(self, optimizers: Any = ()) -> list[Any]:
        """Training roots: of them some optimizer holds a parameter. Inside DDP and FSDP the inner module."""
        held = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
        found: list[Any] = []
        for reference, _ in self._seen.values():
            module = reference()
            if module is None:
                continue
            module = unwrapped(module)
            if held and not any(id(parameter) in held for parameter in module.parameters()):
                continue
            if not any(module is other for other in found):
                found.append(module)
        return [module for module in found if not _is_part_of(module, found)]

    def _entered(self, module: Any, args: Any) -> None:
        try:
            if self._is_compiling():
                self.compiled_seen = True
                return
            if not self.autocast_seen:
                self.autocast_seen = autocast_is_on(self._torch)
            if self._inside is not None and self._inside() is not None:
                return
            self._inside = ref(module)
            if module.training and self._torch.is_grad_enabled():
                key = id(module)
                self._seen.setdefault(key, (ref(module), key))
                self._counts[key] = self._counts.get(key, 0) + 1
                if "OptimizedModule" in type(module).__name__:
                    self.compiled_seen = True
        except Exception as error:
            fault("roots.entered", error)

    def _noted_backward(self, original: Any) -> Any:
        def _engine_run_backward(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if (args[2] if len(args) > 2 else kwargs.get("create_graph")) is True:
                self.double_backward_seen = True
            if (args[1] if len(args) > 1 else kwargs.get("keep_graph")) is True:
                self.graph_kept_seen = True
            return original(outputs, *args, **kwargs)

        return dress(_engine_run_backward, original)

    def _left(self, module: Any, args: Any, output: Any) -> None:
        if self._inside is not None and self._inside() is module:
            self._inside = None


def unwrapped(module: Any) -> Any:
    """The user's module inside wrappers that call it."""
    while True:
        name = type(module).__name__
        if name in ("DistributedDataParallel", "DataParallel") and hasattr(module, "module"):
            module = module.module
        elif name == "FullyShardedDataParallel" and hasattr(module, "_fsdp_wrapped_module"):
            module = module._fsdp_wrapped_module
        else:
            return module


def autocast_is_on(torch: Any) -> bool:
    return any(casts_low(torch, kind) for kind in ("cuda", "cpu"))


def casts_low(torch: Any, kind: str) -> bool:
    """Autocast that computes in 16 bits: on CUDA a script may enter it with float32, where a flag of its own says so."""
    return is_autocast_enabled(torch, kind) and autocast_dtype(torch, kind) in (torch.bfloat16, torch.float16)


def autocast_dtype(torch: Any, kind: str) -> Any:
    try:
        return torch.get_autocast_dtype(kind)
    except AttributeError:  # before torch 2.4
        return torch.get_autocast_gpu_dtype() if kind == "cuda" else torch.get_autocast_cpu_dtype()


def is_autocast_enabled(torch: Any, kind: str) -> bool:
    try:
        return bool(torch.is_autocast_enabled(kind))
    except (TypeError, RuntimeError):  # before torch 2.4 it took no device
        return bool(torch.is_autocast_enabled() if kind == "cuda" else torch.is_autocast_cpu_enabled())


def _is_part_of(module: Any, roots: list[Any]) -> bool:
    """A loss that calls a part of a root directly (weight tying, an encoder's own use) makes that part no second root."""
    return any(other is not module and any(inner is module for inner in other.modules()) for other in roots)
