"""Which steps of several optimizers make one step of the training.

A GAN steps two optimizers in turn, or one of them five times and the other once; others have one per layer. What
repeats is the step. It shows only when an optimizer comes back after others: until then each step of one counts, and
is taken back when it proves to be part of a round.
"""

from __future__ import annotations

MOST_IN_A_ROW = 16  # steps of one optimizer within a round; more are a stage of the training, each a step of its own


class Rounds:
    """Told of every optimizer's step, by the optimizer's number; allocates only where several take turns."""

    def __init__(self) -> None:
        self._last = 0
        self._row = 0  # steps of the last optimizer in a row, and how many of them have been counted
        self._counted = 0
        self._round: dict[int, int] = {}  # optimizer -> steps before its row in this round began
        self._members: set[int] = set()  # of the last complete round
        self._repeats = False  # a round has been seen: what belongs to one is not counted again

    def count(self, optimizer: int, steps: int) -> int:
        """How many steps there are after one more of this optimizer."""
        if optimizer != self._last:
            self._last = optimizer
            return self._take_turn(optimizer, steps)
        self._row += 1
        if self._row > MOST_IN_A_ROW:
            steps += self._row - self._counted
            self._counted = self._row
            if self._repeats or len(self._round) > 1:
                self._repeats = False
                self._round.clear()
            self._round[optimizer] = steps - 1
        elif not self._repeats or optimizer not in self._members:
            self._repeats = False
            steps += self._row - self._counted
            self._counted = self._row
        return steps

    def _take_turn(self, optimizer: int, steps: int) -> int:
        self._row = 1
        before = self._round.get(optimizer)
        if before is None and self._round:
            self._round[optimizer] = steps  # a further one of the same round, until it steps again alone
            self._counted = 0
            return steps
        if before is not None:
            self._members = set(self._round)
            if not self._repeats:
                steps = before + 1
                self._repeats = True
        self._round = {optimizer: steps}
        self._counted = 1
        return steps + 1
