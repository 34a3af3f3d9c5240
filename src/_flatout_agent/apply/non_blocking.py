"""Copies of pinned batches to the device that do not wait for it."""

from __future__ import annotations

from _flatout_agent.apply.copying import CopyKnob
from _flatout_agent.apply.model import Outcome, already, applied, refused
from _flatout_agent.apply.moving import Mover


class NonBlocking(CopyKnob):
    name = "non_blocking"

    def _count(self, mover: Mover) -> int:
        return mover.made_non_blocking

    def _seen(self, mover: Mover, count: int) -> Outcome:
        if count:
            return applied(copies=count)
        return already("script-set-it") if mover.own_non_blocking else refused("no-pinned-batch-was-moved")
