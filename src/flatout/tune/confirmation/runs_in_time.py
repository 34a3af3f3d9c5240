"""Whole runs within a budget that was asked for: one that is not done a little after its end is ended, and tells nothing."""

from __future__ import annotations

from collections.abc import Callable

from flatout.base.records import Missing
from flatout.tune.confirmation.compare_whole_runs import TOO_FEW
from flatout.tune.confirmation.whole_run_parts import RunMade
from flatout.tune.search.questions_and_answers import Values

Run = Callable[[Values, dict[str, float], dict[str, float], float], RunMade]
HANGS = 2.0  # times what the longest plain run took: so long no setting makes a run that gets on


class InTime:
    def __init__(self, run: Run, now: Callable[[], float], left_s: float | None) -> None:
        """`left_s`: for all of them; None where no time was asked for."""
        self._run = run
        self._now = now
        self._ends = None if left_s is None else now() + left_s
        self._plain_s = 0.0

    def run(self, knobs: Values, plain: dict[str, float], until: dict[str, float], longest_s: float) -> RunMade | Missing:
        began = self._now()
        left_s = longest_s if self._ends is None else max(0.0, self._ends - began)
        made = self._run(knobs, plain, until, min(longest_s, left_s))
        cut_off = made.code is None and left_s < longest_s and made.wall_s >= left_s
        if cut_off and not (knobs and 0 < HANGS * self._plain_s <= made.wall_s):
            return Missing(TOO_FEW)  # there was no time to see whether it hangs
        if not knobs and made.code is not None:
            self._plain_s = max(self._plain_s, made.wall_s)
        return made
