"""Rows of steps that were only glanced at, until the tape is read: what is noted of each, and how it goes on the tape."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from _flatout_agent.timeline.event_buffer import Tape


class Batches:
    """A loop with a loader: when each batch was asked for and came, and how many steps were taken.

    A step ends where the next batch is asked for. The last batch told of is left in hand until then, for nothing says
    whether its step has just ended or is still to come but the count.
    """

    def __init__(self, tape: Tape, number: int, iterator: int, size: Any) -> None:
        self.log: list[tuple[int, int, int]] = []  # (asked, came, size)
        # As a hook on steps: called with three arguments it counts itself, and no line of Python runs.
        self.on_step: Any = lru_cache(maxsize=0)(slice)
        self._tape = tape
        self._number = number
        self._iterator = iterator
        self._size = size  # an EqualSizes, or None
        self._counted = 0
        self._balance = 0  # batches that came, less steps
        self._in_hand = False  # the last batch is told of, the end of its step is not
        self._came = 0
        self._usual = 0  # from a batch to the next, waiting for it apart

    def begin(self) -> None:
        """Between two steps."""
        self.log.clear()
        self._counted = self.on_step.cache_info().misses
        self._balance = 0
        self._in_hand = False

    def drain(self, ended: int = 0) -> bool:
        """All of it goes on the tape; `ended`: when the last step did, where that is known. False: not the plain loop."""
        steps, row = self._count(), list(self.log)
        self.log.clear()
        self._tape.ticks += steps
        self._balance += len(row) - steps
        if row:
            self._note_times(row, ended)
        left_out = max(0, self._balance - (0 if ended else 1))
        more = max(0, -self._balance)
        self._balance += more - left_out
        if row and ended and not (left_out or more or self._in_hand):
            self._tape.note((self._tape.clock.glanced_row, row, ended, self._number, self._iterator))
            self._tape.unstepped = 0
        elif row or self._in_hand or more:
            self._tell_each(row, ended, left_out, more)
        return not (left_out or more)

    def close(self, now: int) -> None:
        """From here on steps are seen whole: where the last has ended, nobody saw when."""
        if self._in_hand and not self._balance:
            self._tape.note((self._tape.clock.glanced, max(self._came, min(now, self._came + self._usual)), self._number))
        self._in_hand = False

    def _count(self) -> int:
        before, self._counted = self._counted, self.on_step.cache_info().misses
        return self._counted - before

    def _note_times(self, row: list[tuple[int, int, int]], ended: int) -> None:
        if self._size is not None:
            asked, came, _ = row[-1]
            row[-1] = (asked, came, self._size.of_the_last())
        ends = [asked for asked, _, _ in row[1:]] + ([ended] if ended else [])
        if ends:
            self._usual = sum(end - came for end, (_, came, _) in zip(ends, row)) // len(ends)  # noqa: B905 (Python 3.9)
        self._came = row[-1][1]

    def _tell_each(self, row: list[tuple[int, int, int]], ended: int, left_out: int, more: int) -> None:
        """Which steps were left out nobody saw: the last ones are said to be."""
        tape, clock = self._tape, self._tape.clock
        ends = [asked for asked, _, _ in (row if self._in_hand else row[1:])] + ([ended] if ended else [])
        stepped = len(ends) - left_out
        told = 0
        for place, (asked, came, size) in enumerate(row):
            if place or self._in_hand:
                self._tell_end(ends[told], told < stepped)
                told += 1
            tape.note((clock.fetched, asked, came, size, self._iterator))
        if ended and told < len(ends):
            self._tell_end(ended, told < stepped)
        for _ in range(more):
            tape.note((clock.stepped, self._number))
        self._in_hand = not ended and (self._in_hand or bool(row))
        tape.unstepped = int(self._in_hand and self._balance > 0)

    def _tell_end(self, now: int, stepped: bool) -> None:
        clock = self._tape.clock
        self._tape.note((clock.glanced, now, self._number) if stepped else (clock.glanced_backward, now))


class Ends:
    """A loop without a loader: when each step ended."""

    def __init__(self, tape: Tape, number: int) -> None:
        self.log: list[int] = []
        self._tape = tape
        self._number = number

    def begin(self) -> None:
        self.log.clear()

    def drain(self, ended: int = 0) -> bool:
        row = list(self.log)
        self.log.clear()
        for end in row:
            self._tape.note((self._tape.clock.glanced, end, self._number))
        self._tape.ticks += len(row)
        return True

    def close(self, now: int) -> None:
        """The end of each step was seen."""


class EqualSizes:
    """Batches that torch itself puts together, of so many samples each: only an epoch's last may hold fewer."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator  # a weak reference
        sampler = iterator()._index_sampler
        self.size: int = sampler.batch_size
        whole = len(sampler.sampler) // self.size
        self._number, self._rest = whole + 1, int(len(sampler.sampler) % self.size)

    def of_the_last(self) -> int:
        iterator = self._iterator()
        # An iterator that is gone has told of its end before.
        return self._rest if iterator is not None and iterator._num_yielded == self._number else self.size


def equal_sizes(torch: Any, iterator: Any) -> EqualSizes | None:
    """None where only the batch itself can tell."""
    try:
        source = iterator()
        sampler = source._index_sampler
        data = torch.utils.data
        plain = type(sampler) is data.BatchSampler and type(sampler.batch_size) is int
        collated = source._auto_collation and source._collate_fn is data.dataloader.default_collate
        known = plain and collated and source._dataset_kind == data.dataloader._DatasetKind.Map
        return EqualSizes(iterator) if known else None
    except Exception:  # a sampler without a length, an iterator of the script's own, a torch without these names
        return None
