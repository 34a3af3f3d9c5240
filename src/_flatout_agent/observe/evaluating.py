"""Evaluation without a DataLoader: from the training model's `eval()` to its `train()`.

A loader's batches that nobody trains on say by themselves that they are validation. A script that draws its batches by hand
says it by the mode of its model alone. Both methods are called a few times an evaluation, never in the midst of a plain step.
"""

from __future__ import annotations

from threading import get_ident
from time import perf_counter_ns
from typing import Any

from _flatout_agent.guard import fault
from _flatout_agent.patch import Patches, dress
from _flatout_agent.tape import Tape


def watch(torch: Any, tape: Tape, patches: Patches) -> None:
    patches.put(torch.nn.Module, "train", _noted_mode(torch.nn.Module.train, tape))


def _noted_mode(original: Any, tape: Tape) -> Any:
    """`eval()` calls `train(False)`, which calls itself for every module inside: the outermost call is the one that counts."""
    clock = tape.clock
    under_way = False

    def train(self: Any, mode: bool = True) -> Any:
        nonlocal under_way
        if under_way or not tape.ticks or get_ident() != tape.owner:
            return original(self, mode)
        under_way = True
        try:
            began, before = perf_counter_ns(), getattr(self, "training", None)
            returned = original(self, mode)
        finally:
            under_way = False
        try:
            if before is not mode and may_train(self):
                tape.something_new(began)
                tape.note((clock.evaluation_ended if mode else clock.evaluation_began, began))
        except Exception as error:
            fault("evaluating", error)
        return returned

    return dress(train, original)


def may_train(module: Any) -> bool:
    """A metric's or a loss's own network does not."""
    return any(parameter.requires_grad for parameter in module.parameters())
