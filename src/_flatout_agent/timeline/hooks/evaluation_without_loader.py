"""Evaluation without a DataLoader: from the training model's `eval()` to its `train()`.

A loader's batches that nobody trains on say by themselves that they are validation. A script that draws its batches by hand
says it by the mode of its model alone. Both methods are called a few times an evaluation, never in the midst of a plain step.
"""

from __future__ import annotations

from threading import get_ident
from time import perf_counter_ns
from typing import Any

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.patches import Patches, dress, leave_us_out
from _flatout_agent.timeline.event_buffer import Tape


def watch(torch: Any, tape: Tape, patches: Patches) -> None:
    patches.put(torch.nn.Module, "train", _noted_mode(torch.nn.Module.train, tape))


def _noted_mode(original: Any, tape: Tape) -> Any:
    """`eval()` calls `train(False)`, which calls itself for every module inside: the outermost call is the one that counts."""
    clock = tape.clock
    under_way = False

    def tell(module: Any, before: Any, began: int) -> None:
        try:
            if before is not None and before is not module.training and may_train(module):
                tape.something_new(began)
                tape.note((clock.evaluation_ended if module.training else clock.evaluation_began, began))
        except Exception as error:
            fault("evaluating", error)

    def train(*args: Any, **kwargs: Any) -> Any:
        nonlocal under_way
        outermost = args and tape.ticks and not under_way and get_ident() == tape.owner
        began, before = perf_counter_ns(), getattr(args[0], "training", None) if outermost else None
        under_way = under_way or bool(outermost)
        try:
            returned = original(*args, **kwargs)
        except BaseException as error:
            leave_us_out(error)
            raise
        finally:
            if outermost:
                under_way = False
        if outermost:
            tell(args[0], before, began)
        return returned

    return dress(train, original)


def may_train(module: Any) -> bool:
    """A metric's or a loss's own network does not."""
    return any(parameter.requires_grad for parameter in module.parameters())
