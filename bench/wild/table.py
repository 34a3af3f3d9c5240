"""What `measure.py` measured as a table: promised and delivered for each script, with intervals, and for all together."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Run = dict[str, Any]

DRAWS = 2000
LEVEL = 0.90  # of the intervals
COLUMNS = ["script", "plain s", "tuned s", "promised", "delivered", "90 % interval", "delivered ÷ promised"]
COLUMNS += ["observed ÷ plain", "unexplained", "by hand"]
OWN = ("restoration", "behavior", "vision", "gpt")  # the project's own examples: not part of the mean of public scripts


@dataclass
class Row:
    name: str
    plain: list[float]
    tuned: list[float]
    promised: float
    observed: float | None = None  # seconds under `flatout run` without settings, relative to plain
    unexplained: float | None = None
    by_hand: dict[str, float] = field(default_factory=dict)  # how -> speed-up
    failed: int = 0  # runs under flatout that ended with another code than the plain ones

    @property
    def delivered(self) -> float | None:
        return statistics.median(self.plain) / statistics.median(self.tuned) if self.plain and self.tuned else None

    @property
    def kept(self) -> float | None:
        """Delivered ÷ promised."""
        return self.delivered / self.promised if self.delivered is not None else None

    def interval(self) -> tuple[float, float] | None:
        """Of delivered: medians of runs drawn again from those that were made. None for fewer than two of each."""
        if min(len(self.plain), len(self.tuned)) < 2:
            return None
        chance = random.Random(self.name)
        drawn = sorted(_drawn(self.plain, chance) / _drawn(self.tuned, chance) for _ in range(DRAWS))
        outside = int(DRAWS * (1 - LEVEL) / 2)
        return drawn[outside], drawn[-1 - outside]


def _drawn(values: Sequence[float], chance: random.Random) -> float:
    return statistics.median(chance.choices(values, k=len(values)))


def rows_of(runs: Sequence[Run]) -> list[Row]:
    return [_row(name, [run for run in runs if run["script"] == name]) for name in dict.fromkeys(run["script"] for run in runs)]


def _row(name: str, runs: list[Run]) -> Row:
    plain = _seconds(runs, "plain")
    tune = next((run.get("tune") or {} for run in reversed(runs) if run["kind"] == "tune"), {})
    observed, middle = _seconds(runs, "observed"), statistics.median(plain) if plain else None
    unexplained = [run["unexplained"] for run in runs if run.get("unexplained") is not None]
    usual = {run["code"] for run in runs if run["kind"] == "plain"}
    return Row(
        name,
        plain,
        _seconds(runs, "tuned"),
        promised_by(tune),
        statistics.median(observed) / middle if observed and middle else None,
        max(unexplained, default=None),
        {
            run["kind"][6:]: middle / run["seconds"]
            for run in runs
            if run["kind"].startswith("hand: ") and middle and not run["code"]
        },
        sum(run["kind"] in ("tuned", "observed", "tune") and run["code"] not in usual for run in runs),
    )


def _seconds(runs: Iterable[Run], kind: str) -> list[float]:
    return [run["seconds"] for run in runs if run["kind"] == kind and not run["code"]]


def promised_by(tune: Run) -> float:
    """The whole run's speed-up. Without a profile nothing is promised, and nothing is put on: 1."""
    if not tune.get("profile"):
        return 1.0
    whole = tune.get("whole_run") or {}
    told = whole.get("speedup") if isinstance(whole.get("speedup"), float) else tune.get("speedup")
    return float(told) if isinstance(told, float) else 1.0


def table(runs: Sequence[Run]) -> str:
    rows = rows_of(runs)
    lines = [
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
        *(_line(row) for row in rows),
    ]
    return "\n".join([*lines, "", *_together(rows)])


def _line(row: Row) -> str:
    between = row.interval()
    by_hand = ", ".join(f"{how}: {times:.2f}" for how, times in row.by_hand.items())
    cells = [row.name, _spread(row.plain), _spread(row.tuned), _told(row.promised), _told(row.delivered)]
    cells += [f"{between[0]:.2f} to {between[1]:.2f}" if between else "–", _told(row.kept), _told(row.observed)]
    return "| " + " | ".join([*cells, _told(row.unexplained), by_hand or "–"]) + " |"


def _together(rows: list[Row]) -> list[str]:
    kept = [row.kept for row in rows if row.kept is not None]
    public = [row.delivered for row in rows if row.delivered is not None and row.name not in OWN]
    slower = [row.name for row in rows if (between := row.interval()) is not None and between[1] < 0.98]
    failed = [row.name for row in rows if row.failed]
    told = []
    if kept:
        told.append(f"Median of delivered ÷ promised: {statistics.median(kept):.3f} of {len(kept)} scripts.")
    if public:
        mean = math.exp(statistics.fmean(map(math.log, public)))
        told.append(f"Geometric mean of what was delivered on the {len(public)} public scripts: {mean:.2f}.")
    told.append(
        f"Slower than plain beyond doubt: {', '.join(slower) or 'none'}. Failed under flatout: {', '.join(failed) or 'none'}."
    )
    return told


def _spread(values: list[float]) -> str:
    if not values:
        return "–"
    return f"{statistics.median(values):.1f}" + (f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else "")


def _told(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
