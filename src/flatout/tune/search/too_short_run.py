"""A run that ends before anything could be gained: its loop takes a few seconds, and no setting saves more than the loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flatout.base.records import Missing
from flatout.measure.model import Summary
from flatout.tune.search.questions_and_answers import Ceilings, Ending, Finished
from flatout.tune.search.run_length import RunLength, earlier_run
from flatout.tune.search.time_budget import Costs

FEW_S = 5.0


def loop_s(line: Sequence[str], length: RunLength | None, costs: Costs, ready: Mapping[str, Any], here: Path) -> float | None:
    """Of the whole run without settings, where it is known to be so short; None where a search may be worth it."""
    if length is None or length.steps is None:
        return None
    earlier = earlier_run(line, here) if length.source == "earlier-run" else None
    found = _seen_s(earlier) if earlier is not None else _foreseen_s(length.steps, costs, ready)
    return found if found is not None and found < FEW_S else None


def _seen_s(run: Summary) -> float | None:
    """All but the start. Under a profile it was shorter than without."""
    return run.wall_s - run.parts.get("start", 0.0) if run.promise is None and run.parts else None


def _foreseen_s(steps: int, costs: Costs, ready: Mapping[str, Any]) -> float | None:
    """Workers have the first batches ready before they are asked for: with them the first steps say nothing of the later."""
    return steps * costs.step_s if costs.step_s and not ready.get("workers") else None


def nothing_to_do(seconds: float) -> Finished:
    none = Missing("not-measured")
    return Finished(
        ending=Ending.NOT_WORTH,
        profile={},
        decisions=[],
        speedup=none,
        lower=none,
        upper=none,
        baseline=none,
        final=none,
        ceilings=Ceilings(),
        bound_before=None,
        bound_after=None,
        noise=none,
        drift=0.0,
        throttled=False,
        spent_s=0.0,
        segments=0,
        seconds=round(seconds, 1),
    )
