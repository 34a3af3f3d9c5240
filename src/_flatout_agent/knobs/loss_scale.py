"""Loss scaling for a script that has none: gradients are scaled inside the backward pass and nowhere else.

When `backward` returns, every gradient has its true size again: clipping, logging and accumulation in the script see what
they would see without it. The scale is a power of two, so that scaling and unscaling are exact. A step whose gradients
overflowed is left out as GradScaler would: parameters without a gradient are not moved by any optimizer.
"""

from __future__ import annotations

import gc
from typing import Any, Callable, Iterator

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.patches import Patches, dress
from _flatout_agent.knobs.knob import Scene

FIRST_SCALE = 2.0**16  # the same three numbers as torch.amp.GradScaler
GROWTH_STEPS = 2000
LEAST_SCALE = 1.0
LOOKS = 3  # so many backward passes are searched for gradients that we would not find to unscale


class LossScale:
    """Put on with fp16 autocast; `give_up` is called where it turns out that scaling would change what is learned."""

    def __init__(self, torch: Any, give_up: Callable[[], None] = lambda: None) -> None:
        self._torch = torch
        self._give_up = give_up
        self._patches = Patches()
        self._leaves: list[Any] = []
        self._known: set[int] = set()
        self._on = False
        self._inside = False
        self._backwards = 0
        self._good_steps = 0
        self.scale = FIRST_SCALE
        self.skipped = 0
        self.fault = ""

    def put_on(self, scene: Scene) -> tuple[str, dict[str, Any]] | None:
        """The reason and its details where the script cannot be scaled."""
        parameters = [p for o in scene.optimizers for group in o.param_groups for p in group["params"]]
        parameters += [p for root in scene.roots for p in root.parameters() if p.requires_grad]
        why = self._obstacle(scene, parameters)
        if why is not None:
            return why
        unique = {id(p): p for p in parameters}
        self._leaves, self._known = list(unique.values()), set(unique)
        autograd = self._torch.autograd
        self._patches.put(autograd, "backward", self._scaled_backward(autograd.backward))
        for optimizer in scene.optimizers:
            self._patches.on_take_off(optimizer.register_step_pre_hook(self._before_step).remove)
        self._on = True
        return None

    def _obstacle(self, scene: Scene, parameters: list[Any]) -> tuple[str, dict[str, Any]] | None:
        scaler = _living_scaler(self._torch)
        if scaler:
            return "script-has-own-scaler", {"class": scaler}
        if not scene.optimizers:
            return "no-optimizer-found", {}
        for optimizer in scene.optimizers:
            if type(optimizer).__name__ == "LBFGS":
                return "step-with-closure", {"optimizer": "LBFGS"}
        hooked = sum(bool(p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None)) for p in parameters)
        if hooked:
            return "hooks-on-parameters", {"parameters": hooked}  # they would see scaled gradients
        return None

    def take_off(self) -> None:
        self._on = False  # where somebody has patched over ours it stays, and passes through
        self._patches.take_off()
        self._leaves, self._known = [], set()

    def told(self) -> dict[str, Any]:
        return {"scale": self.scale, "skipped_steps": self.skipped, "scaled_backwards": self._backwards}

    def _scaled_backward(self, original: Any) -> Any:
        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            # Reentrant checkpointing calls it from inside, with gradients that are scaled already.
            if not self._on or self._inside or not self._may_scale(tensors):
                return original(tensors, grad_tensors, *args, **kwargs)
            scaled = self._scaled_seeds(tensors, grad_tensors)
            self._inside = True
            self._multiply(self.scale)  # what earlier passes have accumulated
            try:
                return original(tensors, scaled, *args, **kwargs)
            finally:
                self._multiply(1.0 / self.scale)
                self._inside = False

        return dress(backward, original)

    def _may_scale(self, tensors: Any) -> bool:
        try:
            self._backwards += 1
            if self._backwards > LOOKS and self._backwards & (self._backwards - 1):
                return True
            for leaf in leaves_of(self._torch, tensors):
                if id(leaf) not in self._known:
                    return self._stop("gradient-outside-the-model")
            return True
        except Exception as error:
            fault("loss_scale.look", error)
            return self._stop("fault")

    def _scaled_seeds(self, tensors: Any, grad_tensors: Any) -> Any:
        torch = self._torch
        tensors = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
        if grad_tensors is None or isinstance(grad_tensors, torch.Tensor):
            grad_tensors = (grad_tensors,) * len(tensors)
        seeds = []
        for tensor, seed in zip(tensors, grad_tensors):  # noqa: B905
            if seed is None and tensor.numel() == 1:
                seed = torch.ones_like(tensor)
            seeds.append(None if seed is None else seed * self.scale)  # torch complains about None as it would anyway
        return tuple(seeds)

    def _multiply(self, factor: float) -> None:
        torch = self._torch
        dense: dict[Any, list[Any]] = {}
        with torch.no_grad():
            for gradient in (leaf.grad for leaf in self._leaves):
                if gradient is None:
                    continue
                if gradient.is_sparse:
                    gradient.mul_(factor)
                else:
                    dense.setdefault((gradient.device, gradient.dtype), []).append(gradient)
            for gradients in dense.values():
                torch._foreach_mul_(gradients, factor)

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        try:
            if not self._on:
                return
            if any(callable(argument) for argument in (*args, *kwargs.values())):
                self._stop("step-with-closure")  # its gradients come after this look at them
                return
            parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            if self._overflowed([p.grad for p in parameters]):
                for parameter in parameters:
                    parameter.grad = None
                self.skipped += 1
                self._good_steps = 0
                self.scale = max(LEAST_SCALE, self.scale / 2)
                return
            self._good_steps += 1
            if self._good_steps >= GROWTH_STEPS:
                self._good_steps = 0
                self.scale *= 2
        except Exception as error:
            fault("loss_scale.step", error)
            self._stop("fault")

    def _overflowed(self, gradients: list[Any]) -> bool:
        torch = self._torch
        values = [gradient._values() if gradient.is_sparse else gradient for gradient in gradients]
        norms: dict[Any, list[Any]] = {}
        for value in values:
            norms.setdefault(value.device, []).append(value)
        return any(not bool(torch.isfinite(torch.stack(torch._foreach_norm(group))).all()) for group in norms.values())

    def _stop(self, why: str) -> bool:
        self.fault = why
        self._on = False
        self._give_up()
        return False


def leaves_of(torch: Any, tensors: Any) -> Iterator[Any]:
    """Every tensor that a backward pass from here would give a gradient to."""
    tensors = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
    todo = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen = set(todo)
    while todo:
        node = todo.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            yield variable
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)


def _living_scaler(torch: Any) -> str:
    kinds = tuple(kind for kind in (getattr(torch.amp, "GradScaler", None), torch.cuda.amp.GradScaler) if kind is not None)
    for thing in gc.get_objects():
        # Not `isinstance`: it asks lazy proxies for their class, and they warn or import.
        if issubclass(type(thing), kinds) and getattr(thing, "_enabled", True):
            return type(thing).__name__
    return ""
