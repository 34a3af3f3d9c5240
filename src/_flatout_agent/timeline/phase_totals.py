"""Nanoseconds by phase: what happens inside another phase is taken from it, so that nothing is counted twice."""

from __future__ import annotations

from _flatout_agent.wire import PHASES

STARTUP, SETTINGS, INPUT, COPY, FORWARD, BACKWARD, OPTIMIZER, DEVICE_WAIT, COMPILE, TURN = range(10)
VALIDATION, CHECKPOINT, SCRIPT, SHUTDOWN = range(10, 14)

# What happens inside another phase and is taken from it. Whatever batches turn out to be for, some of it is never theirs.
INSIDE = (COPY, DEVICE_WAIT, COMPILE, CHECKPOINT, SETTINGS)
NEVER_THE_BATCHES = (COMPILE, CHECKPOINT, SETTINGS)
NOTHING = (0,) * len(PHASES)

# Into what a step divides of which only the end was seen.
DIVIDED = (FORWARD, BACKWARD, OPTIMIZER, COPY, DEVICE_WAIT, SCRIPT)


class PhaseTotals:
    """The account itself: the time since the mark is given to one phase, less what happened inside it."""

    def __init__(self, began: int) -> None:
        self.began = began
        self.start_over()

    def start_over(self) -> None:
        self.totals = [0] * len(PHASES)
        self.split: tuple[int, ...] = (1, 1, 1, 0, 0, 0)  # how: parts of DIVIDED
        self._mark = self.began
        self._inside = [0] * len(PHASES)  # since the mark, inside the running phase: copies, waits and the like
        self._any_inside = False

    def compiled(self, nanoseconds: int) -> None:
        self._inside[COMPILE] += nanoseconds
        self._any_inside = True

    def worked(self, nanoseconds: int) -> None:
        """Flatout itself, in the training thread."""
        self._inside[SETTINGS] += nanoseconds
        self._any_inside = True

    def saved(self, began: int, ended: int) -> None:
        self._inside[CHECKPOINT] += ended - began
        self._any_inside = True

    def _give(self, now: int, phase: int) -> None:
        """The time since the mark, less the copies and waits inside it, is `phase`'s."""
        self.totals[phase] += now - self._mark
        self._mark = now
        if self._any_inside:
            for kind in INSIDE:
                self.totals[kind] += self._inside[kind]
                self.totals[phase] -= self._inside[kind]
            self._forget_inside()

    def _of_a_batch(self, now: int) -> int:
        """The time since the mark, which goes with a batch or an evaluation: it keeps its copies and waits."""
        spent = now - self._mark
        self._mark = now
        if self._any_inside:
            for kind in NEVER_THE_BATCHES:
                self.totals[kind] += self._inside[kind]
                spent -= self._inside[kind]
            self._forget_inside()
        return spent

    def _forget_inside(self) -> None:
        self._inside[:] = NOTHING
        self._any_inside = False

    def _share_out(self, spent: int) -> None:
        """Of steps of which only the ends were seen: as `split` says."""
        split, left = self.split, spent
        whole = max(1, sum(split))
        for place, phase in enumerate(DIVIDED[1:], 1):
            part = spent * split[place] // whole
            self.totals[phase] += part
            left -= part
        self.totals[FORWARD] += left
