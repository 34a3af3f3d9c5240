"""Backward passes and optimizer steps."""

from __future__ import annotations

from threading import get_ident
from time import perf_counter_ns
from typing import Any

from _flatout_agent.clock import StepClock
from _flatout_agent.guard import fault
from _flatout_agent.identities import Identities
from _flatout_agent.patch import Patches, dress


def watch(torch: Any, clock: StepClock, patches: Patches) -> None:
    from torch.optim import optimizer

    is_compiling = compiling_test(torch)

    # `Tensor.backward` calls `torch.autograd.backward` by name, so this one place sees both.
    patches.put(torch.autograd, "backward", _timed_backward(torch.autograd.backward, clock, is_compiling))

    # Public and global: every optimizer, the user's own subclasses included.
    number = Identities().of
    patches.on_take_off(optimizer.register_optimizer_step_pre_hook(_began_hook(clock, number, is_compiling)).remove)
    patches.on_take_off(optimizer.register_optimizer_step_post_hook(_ended_hook(clock, number, is_compiling)).remove)


def _began_hook(clock: StepClock, number: Any, is_compiling: Any) -> Any:
    def step_began(stepping: Any, args: Any, kwargs: Any) -> None:
        if is_compiling() or clock.off:
            return
        now = perf_counter_ns()
        try:
            if get_ident() != clock.owner:
                if clock.steps or clock.in_backward:
                    return
                clock.owner = get_ident()  # training runs in a thread of the script's own
            clock.step_began(now, number(stepping))
        except Exception as error:
            fault("steps.began", error)

    return step_began


def _ended_hook(clock: StepClock, number: Any, is_compiling: Any) -> Any:
    def step_ended(stepping: Any, args: Any, kwargs: Any) -> None:
        if is_compiling() or clock.off:
            return
        try:
            if get_ident() == clock.owner:
                clock.step_ended(perf_counter_ns(), number(stepping))
            elif clock.in_backward:
                clock.stepped(number(stepping))  # inside the backward pass, in a thread of torch's
        except Exception as error:
            fault("steps.ended", error)

    return step_ended


def compiling_test(torch: Any) -> Any:
    """What Dynamo folds to True while it traces; torch below 2.1 has no public name for it."""
    return getattr(torch.compiler, "is_compiling", None) or (lambda: False)


def _timed_backward(original: Any, clock: StepClock, is_compiling: Any) -> Any:
    def backward(*args: Any, **kwargs: Any) -> Any:
        # Reentrant checkpointing calls it again from inside: the outermost call holds the rest.
        if is_compiling() or clock.off or clock.in_backward or get_ident() != clock.owner:
            return original(*args, **kwargs)
        try:
            clock.backward_began(perf_counter_ns())
        except Exception as error:
            fault("steps.backward_began", error)
        try:
            return original(*args, **kwargs)
        finally:
            try:
                clock.backward_ended(perf_counter_ns())
            except Exception as error:
                fault("steps.backward_ended", error)

    return dress(backward, original)
