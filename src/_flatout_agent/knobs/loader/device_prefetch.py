"""The next batch copied to the device on a stream of its own while the card works on the present one.

Fetched one batch ahead where that changes nothing (see `ahead`); else copied as soon as it arrives, which overlaps with
whatever the card still has to do.
"""

from __future__ import annotations

from _flatout_agent.knobs.knob import Outcome, applied, refused
from _flatout_agent.knobs.loader.batch_copies import PREFETCH, Mover
from _flatout_agent.knobs.loader.watched_copies import CopyKnob


class DevicePrefetch(CopyKnob):
    name = PREFETCH

    def _count(self, mover: Mover) -> int:
        return mover.used_ahead

    def _seen(self, mover: Mover, count: int) -> Outcome:
        if count:
            return applied(copies_used=count, copies_made=mover.copied_ahead, batches_ahead=mover.sent)
        return refused("copies-never-used" if mover.copied_ahead else "no-pinned-batch-was-moved")
