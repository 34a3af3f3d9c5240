"""Why a search cannot go on with what it is doing."""

from __future__ import annotations

from flatout.tune.search.questions_and_answers import Status


class StandingBrokenError(Exception):
    """What was kept no longer gets through a segment."""

    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.status = status


class TooShortError(Exception):
    """The script ends before anything can be timed."""


class BudgetSpentError(Exception):
    """The budget ended in the middle of a segment."""
