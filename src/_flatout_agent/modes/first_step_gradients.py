"""What a training makes of one batch: its gradients in few numbers, to be laid beside those of another training.

Two trainings that began with the same seed have the same weights and the same batch when the knobs are put on. The step that
follows says more than any loss curve: a loss term that went missing makes the loss smaller, which looks like learning.
"""

from __future__ import annotations

from typing import Any, Callable

from _flatout_agent.core.fault_guard import fault

MOST = 4096  # numbers for all of a model's gradients
FEWEST, MOST_EACH = 4, 256  # of one parameter
SCATTER = 2654435761  # a stride that falls into no column: which numbers of a gradient are looked at
LONGEST_ROUND = 8  # steps: by then every optimizer that still trains has had its turn


class FirstStep:
    """From the moment it is made until every optimizer has stepped once, on gradients of losses that came meanwhile."""

    def __init__(self, torch: Any, losses: Callable[[], int], optimizers: list[Any]) -> None:
        from torch.optim import optimizer

        self._torch = torch
        self._losses = losses
        self._begun = losses()
        self._missing = {id(one) for one in optimizers}
        self._known: set[int] = set()
        self._after: list[Any] = []  # whose closure makes their gradients inside the step
        self._ticks = 0
        self._norms: list[Any] = []
        self._parts: list[Any] = []
        self._handle = optimizer.register_optimizer_step_pre_hook(self._before_step)

    def ended(self) -> bool:
        """At the end of each step."""
        if self._losses() > self._begun:
            self._ticks += 1
        return bool(self._known) and (not self._missing or self._ticks >= LONGEST_ROUND)

    def told(self) -> dict[str, Any] | None:
        """What it saw; None where that cannot be told."""
        self._handle.remove()
        try:
            for optimizer in self._after:
                self._look_at(optimizer)
            norms = [None if norm is None else float(norm) for norm in self._norms]
            sample = [[] if part is None else part.tolist() for part in self._parts]
        except Exception as error:
            fault("first_step.told", error)
            return None
        finally:
            self._norms, self._parts, self._after = [], [], []
        return {"begun": self._begun, "ended": self._losses(), "norms": norms, "sample": sample}

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Each once. What steps before a loss came has the gradients of a batch before."""
        try:
            closure = any(map(callable, (*args, *kwargs.values())))  # among the arguments is the optimizer itself
            if id(optimizer) in self._known or (not closure and self._losses() <= self._begun):
                return
            self._known.add(id(optimizer))
            self._missing.discard(id(optimizer))
            if not closure:
                self._look_at(optimizer)
            elif not isinstance(optimizer, self._torch.optim.LBFGS):  # its line search has gradients of many places
                self._after.append(optimizer)
        except Exception as error:
            fault("first_step", error)

    def _look_at(self, optimizer: Any) -> None:
        torch = self._torch
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        scale = getattr(optimizer, "grad_scale", None)  # a fused step unscales by itself
        each = min(MOST_EACH, max(FEWEST, MOST // max(1, len(parameters))))
        with torch.no_grad():
            for parameter in parameters:
                norm = part = None
                if parameter.grad is not None:
                    numbers = _numbers(torch, parameter.grad)
                    norm = _unscaled(torch.linalg.vector_norm(numbers.float()), scale)
                    part = _unscaled(_some(torch, numbers, each), scale)  # a copy: steps may write into their gradients
                self._norms.append(norm)
                self._parts.append(part)


def _numbers(torch: Any, gradient: Any) -> Any:
    """Those of this process, in a row."""
    if hasattr(gradient, "to_local"):
        gradient = gradient.to_local()
    if gradient.is_sparse:
        gradient = gradient.coalesce().values()
    gradient = gradient.detach().flatten()
    return torch.view_as_real(gradient).flatten() if gradient.is_complex() else gradient


def _some(torch: Any, numbers: Any, count: int) -> Any:
    """Always the same ones, and none of torch's random numbers to choose them by."""
    length = numbers.numel()
    if length <= count:
        return numbers.float().clone()
    return numbers[(torch.arange(count, device=numbers.device) * SCATTER) % length].float()


def _unscaled(numbers: Any, scale: Any) -> Any:
    return numbers if scale is None else numbers / scale.to(numbers.device)


def other_draws(torch: Any, roots: list[Any], number: int) -> None:
    """From the next forward pass on dropout and its like draw other numbers: how much these change a gradient by themselves.
    The batch is there by then, and has the numbers that it has in every training from this seed."""
    if not number or not roots:
        return

    def draw(module: Any, inputs: Any) -> None:
        handle.remove()
        torch.manual_seed(torch.initial_seed() + number)

    handle = roots[0].register_forward_pre_hook(draw)
