"""How long children are waited for. A budget holds when they hang or die: within a grace that is stated here."""

from __future__ import annotations

from flatout.base.clock import Clock

IDLE_S = 45.0  # without any processor time in between: it hangs …
LEAST_IDLE_S = 5.0  # … and where the budget is shorter than that, so long at least
LONGEST_S = 600.0
LEAST_LOOK_S = 60.0  # a start that works may take so long, however short the budget
GRACE_S, GRACE_SHARE = 5.0, 0.25  # seconds, and of the budget: what a search may take beyond it


class Patience:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: float | None = None
        self.idle_s = IDLE_S
        self.look_s = LONGEST_S  # for the first child

    def keep_to(self, asked_s: float | None) -> None:
        """Before anything is started: what hangs must not take many times what was asked for, if anything was."""
        budget_s = asked_s or LONGEST_S
        self.idle_s = min(IDLE_S, max(LEAST_IDLE_S, budget_s))
        self.look_s = min(LONGEST_S, max(LEAST_LOOK_S, 4 * budget_s))

    def search_begins(self, budget_s: float) -> None:
        """A segment that is not done a little after its end is given up."""
        self._until = self._clock.monotonic() + budget_s + GRACE_S + GRACE_SHARE * budget_s

    def search_is_over(self) -> None:
        """What follows has a budget of its own."""
        self._until = None

    def overdue(self) -> bool:
        return self._until is not None and self._clock.monotonic() >= self._until
