"""How long children are waited for. A budget holds when they hang or die: within a grace that is stated here."""

from __future__ import annotations

from typing import Protocol

from flatout.base.clock import Clock

IDLE_S = 45.0  # without any processor time in between: it hangs …
LEAST_IDLE_S = 5.0  # … and where the budget is shorter than that, so long at least
LONGEST_S = 600.0
IDLE_LOOK_S, STILL_LOOK_S = 5.0, 1.0  # between two looks at what a child uses
LEAST_WORK_S = 0.2  # of the processor
LEAST_LOOK_S = 60.0  # a start that gets on may take so long, however short the budget …
STILL_SHARE = 1.5  # … and one that is busy, but neither reads nor writes nor takes memory, so many times the budget
TRAINING_TIMES = 2.0  # what was foreseen of a training whose losses are compared, and as long as the budget beside that
GRACE_S, GRACE_SHARE = 5.0, 0.25  # seconds, and of the budget: what a search may take beyond it


class Patience:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: float | None = None
        self.idle_s = IDLE_S
        self.look_s = LONGEST_S  # for the first child
        self.still_s = LONGEST_S  # for the first child as well
        self._more_s = LONGEST_S
        self.grace_s: float | None = None  # beyond a budget that was asked for

    def keep_to(self, asked_s: float | None) -> None:
        """Before anything is started: what hangs must not take many times what was asked for, if anything was."""
        budget_s = asked_s or LONGEST_S
        self.idle_s = min(IDLE_S, max(LEAST_IDLE_S, budget_s))
        self.look_s = min(LONGEST_S, max(LEAST_LOOK_S, 4 * budget_s))
        self.still_s = min(LONGEST_S, max(LEAST_IDLE_S, STILL_SHARE * budget_s))
        self._more_s = min(LONGEST_S, max(LEAST_IDLE_S, budget_s))
        self.grace_s = GRACE_S + GRACE_SHARE * asked_s if asked_s else None

    def search_begins(self, budget_s: float) -> None:
        """A segment that is not done a little after its end is given up."""
        self._until = self._clock.monotonic() + budget_s + GRACE_S + GRACE_SHARE * budget_s

    def search_is_over(self) -> None:
        """What follows has a budget of its own."""
        self._until = None

    def training_s(self, foreseen_s: float) -> float:
        """Of a training whose losses are compared, after the search: this may compute, and yet must not spin for ever."""
        return min(LONGEST_S, TRAINING_TIMES * foreseen_s + self._more_s)

    def overdue(self) -> bool:
        return self._until is not None and self._clock.monotonic() >= self._until


class Used(Protocol):
    """A child: what it has used so far."""

    def busy_s(self) -> float: ...
    def moved(self) -> int: ...


class SignsOfLife:
    """Of one child, while it is waited for: does nothing at all, or is busy and does not get on."""

    def __init__(self, child: Used, idle_s: float, still_s: float | None, now: float) -> None:
        """`still_s`: None where a child may compute for as long as it likes."""
        self._child, self._idle_s, self._still_s = child, idle_s, still_s
        self._worked = self._got_on = self._looked = now
        self._busy_s, self._moved = 0.0, 0

    def have_ended(self, now: float) -> bool:
        return self._is_idle(now) or self._is_still(now)

    def _is_idle(self, now: float) -> bool:
        if now - self._worked <= IDLE_LOOK_S:
            return False
        used = self._child.busy_s()
        if used - self._busy_s > LEAST_WORK_S:
            self._busy_s, self._worked = used, now
            return False
        return now - self._worked > self._idle_s

    def _is_still(self, now: float) -> bool:
        if self._still_s is None or now - self._looked < STILL_LOOK_S:
            return False
        self._looked = now
        moved = self._child.moved()
        if moved != self._moved:
            self._moved, self._got_on = moved, now
        return now - self._got_on > self._still_s
