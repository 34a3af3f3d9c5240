"""Copies of pinned batches to the device that do not wait for it."""

from __future__ import annotations

from _flatout_agent.knobs.knob import Outcome, already, applied, refused
from _flatout_agent.knobs.loader.batch_copies import Mover
from _flatout_agent.knobs.loader.watched_copies import CopyKnob


class NonBlocking(CopyKnob):
    name = "non_blocking"

    def _count(self, mover: Mover) -> int:
        return mover.made_non_blocking

    def _seen(self, mover: Mover, count: int) -> Outcome:
        if count:
            return applied(copies=count)
        return already("script-set-it") if mover.own_non_blocking else refused("no-pinned-batch-was-moved")
