"""What the loader could supply: batches drawn as fast as it gives them, with nothing computed in between.

Only in a trial: what is drawn and not trained on is gone from that epoch.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any, Callable

from _flatout_agent.timeline.samples_in_batch import size_of

MODE = "supply"
MOST_EPOCHS = 4  # that may end before enough is timed
FEWEST_STEPS = 3
SHARE_TO_WARM = 4  # of a short epoch, one in so many batches
NOTHING = object()


class Supply:
    """One measurement, over as many epochs as it takes."""

    def __init__(self, segment: dict[str, Any]) -> None:
        self._warm = max(1, int(segment["warm_steps"]))
        self._wanted_ns = segment["timed_s"] * 1e9
        self._wanted_steps = max(FEWEST_STEPS, int(segment["timed_steps"]))
        self._warm_left = self._warm
        self._last = 0
        self._epochs = 0
        self.samples = 0
        self.steps = 0
        self.spent = 0  # nanoseconds
        self.over = False
        self.epoch_over = False  # after the batch that was drawn last

    @property
    def usable(self) -> bool:
        return self.steps >= FEWEST_STEPS

    def begin_epoch(self, length: int | None) -> None:
        """Before the first batch: a short epoch is not all warming."""
        self._warm_left = self._warm if length is None else min(self._warm, max(1, length // SHARE_TO_WARM))

    def draw(self, take: Callable[[], Any], unsettled: Callable[[], bool]) -> Any:
        """Takes batches until enough are timed or the epoch ends; the script gets the last one, so that no epoch is empty."""
        self.epoch_over = False
        batch: Any = NOTHING
        try:
            while not self.over:
                batch = take()
                self._count(batch, perf_counter_ns(), unsettled)
        except StopIteration:
            self._epochs += 1
            self.over = self._epochs >= MOST_EPOCHS
            if batch is NOTHING:
                raise
            self.epoch_over = True
        return batch

    def _count(self, batch: Any, now: int, unsettled: Callable[[], bool]) -> None:
        if self._warm_left > 0:
            self._warm_left -= not unsettled()  # what was fetched before the switch came at no price
        else:
            self.steps += 1
            self.samples += size_of(batch)
            self.spent += now - self._last
            self.over = self.steps >= self._wanted_steps and self.spent >= self._wanted_ns
        self._last = now
