"""Backward passes and optimizer steps."""

from __future__ import annotations

from threading import get_ident
from time import perf_counter_ns
from typing import Any

from _flatout_agent.clock import StepClock
from _flatout_agent.guard import fault
from _flatout_agent.patch import Patches, dress


def watch(torch: Any, clock: StepClock, patches: Patches) -> None:
    from torch.optim import optimizer

    is_compiling = compiling_test(torch)

    # `Tensor.backward` calls `torch.autograd.backward` by name, so this one place sees both.
    patches.put(torch.autograd, "backward", _timed_backward(torch.autograd.backward, clock, is_compiling))

    def step_began(stepping: Any, args: Any, kwargs: Any) -> None:
        if is_compiling() or clock.off:
            return
        now = perf_counter_ns()
        try:
            if get_ident() != clock.owner:
                if clock.steps:
                    return
                clock.owner = get_ident()  # training runs in a thread of the script's own
            clock.step_began(now, id(stepping))
        except Exception as error:
            fault("steps.began", error)

    def step_ended(stepping: Any, args: Any, kwargs: Any) -> None:
        if is_compiling() or clock.off or get_ident() != clock.owner:
            return
        try:
            clock.step_ended(perf_counter_ns(), id(stepping))
        except Exception as error:
            fault("steps.ended", error)

    # Public and global: every optimizer, the user's own subclasses included.
    patches.on_take_off(optimizer.register_optimizer_step_pre_hook(step_began).remove)
    patches.on_take_off(optimizer.register_optimizer_step_post_hook(step_ended).remove)


def compiling_test(torch: Any) -> Any:
    """What Dynamo folds to True while it traces; torch below 2.1 has no public name for it."""
    return getattr(torch.compiler, "is_compiling", None) or (lambda: False)


def _timed_backward(original: Any, clock: StepClock, is_compiling: Any) -> Any:
    inside = False

    def backward(*args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        # Reentrant checkpointing calls it again from inside: the outermost call holds the rest.
        if is_compiling() or clock.off or inside or get_ident() != clock.owner:
            return original(*args, **kwargs)
        inside = True
        try:
            clock.backward_began(perf_counter_ns())
        except Exception as error:
            fault("steps.backward_began", error)
        try:
            return original(*args, **kwargs)
        finally:
            inside = False
            try:
                clock.backward_ended(perf_counter_ns())
            except Exception as error:
                fault("steps.backward_ended", error)

    return dress(backward, original)
