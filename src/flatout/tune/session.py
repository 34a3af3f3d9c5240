"""A search carried out: segment after segment, each on the disk before the next begins."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from flatout.tune.journal import TuneLine, line_of, read_lines
from flatout.tune.model import Decision, Finished, Plan, Progress, SegmentResult
from flatout.tune.search import Search
from flatout.tune.trials import Trials

Watcher = Callable[[Progress, list[Decision]], None]  # called before each segment, with the decisions that are new

JOURNAL = "tune.jsonl"


class Session:
    """Owns the journal. Resumed, it begins after the last segment that is on the disk."""

    def __init__(self, folder: Path, plan: Plan | None = None) -> None:
        self._path = folder / JOURNAL
        self._results: list[SegmentResult] = []
        if plan is None:
            plan, self._results = read_lines(self._path.read_text(encoding="ascii").splitlines())
        else:
            self._append(TuneLine(plan=plan))
        self.plan = plan
        self.resumed = len(self._results)

    def run(self, trials: Trials, watch: Watcher) -> Finished:
        search = Search(self.plan)
        trials.batch = self.plan.batch_line
        known = 0
        while True:
            wanted = search.next(self._results)
            fresh = search.decisions[known:]
            known += len(fresh)
            watch(search.progress(), fresh)
            if isinstance(wanted, Finished):
                return wanted
            result = trials.carry_out(wanted)
            self._append(TuneLine(segment=wanted, result=result, decisions=fresh))
            self._results.append(result)

    def _append(self, line: TuneLine) -> None:
        with self._path.open("a", encoding="ascii") as file:
            file.write(line_of(line))
            file.flush()
            os.fsync(file.fileno())
