"""What a training makes of one batch: its gradients in few numbers, to be laid beside those of another training.

Two trainings that began with the same seed have the same weights and the same batch when the knobs are put on. The step that
follows says more than any loss curve: a loss term that went missing makes the loss smaller, which looks like learning.
"""

from __future__ import annotations

from typing import Any

from _flatout_agent.guard import fault

MOST = 4096  # numbers for all of a model's gradients
FEWEST, MOST_EACH = 4, 256  # of one parameter


class FirstStep:
    """From the moment it is made to the end of the next step."""

    def __init__(self, torch: Any, begun: int) -> None:
        from torch.optim import optimizer

        self._torch = torch
        self._begun = begun  # losses that were there
        self._known: set[int] = set()
        self._norms: list[Any] = []
        self._parts: list[Any] = []
        self._handle = optimizer.register_optimizer_step_pre_hook(self._before_step)

    def end(self, losses: int) -> dict[str, Any]:
        """What it saw, when so many losses are there."""
        self._handle.remove()
        norms = [None if norm is None else float(norm) for norm in self._norms]
        sample = [[] if part is None else part.tolist() for part in self._parts]
        self._norms, self._parts = [], []
        return {"begun": self._begun, "ended": losses, "norms": norms, "sample": sample}

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Of several optimizers each once: a GAN's critic may step five times."""
        try:
            if id(optimizer) not in self._known:
                self._known.add(id(optimizer))
                self._look_at(optimizer)
        except Exception as error:
            fault("first_step", error)

    def _look_at(self, optimizer: Any) -> None:
        torch = self._torch
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        scale = getattr(optimizer, "grad_scale", None)  # a fused step unscales by itself
        each = min(MOST_EACH, max(FEWEST, MOST // max(1, len(parameters))))
        with torch.no_grad():
            for parameter in parameters:
                gradient = parameter.grad
                if gradient is None:
                    self._norms.append(None)
                    self._parts.append(None)
                    continue
                if gradient.is_sparse:
                    gradient = gradient.coalesce().values()
                gradient = gradient.detach().flatten()
                self._norms.append(_norm(torch, gradient, scale))
                self._parts.append(_unscaled(gradient[:: max(1, len(gradient) // each)][:each], scale))


def other_draws(torch: Any, roots: list[Any], number: int) -> None:
    """From the next forward pass on dropout and its like draw other numbers: how much these change a gradient by themselves.
    The batch is there by then, and has the numbers that it has in every training from this seed."""
    if not number or not roots:
        return

    def draw(module: Any, inputs: Any) -> None:
        handle.remove()
        torch.manual_seed(torch.initial_seed() + number)

    handle = roots[0].register_forward_pre_hook(draw)


def _norm(torch: Any, gradient: Any, scale: Any) -> Any:
    return _unscaled(torch.linalg.vector_norm(gradient, dtype=torch.float32), scale)


def _unscaled(numbers: Any, scale: Any) -> Any:
    numbers = numbers.float()
    return numbers if scale is None else numbers / scale.to(numbers.device)
