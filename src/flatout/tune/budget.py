"""How long a search may take: what was asked for, or a tenth of the run that it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatout.base.records import Struct

USUAL_S = 90.0  # where nothing tells how long the run will be
LEAST_S, MOST_S = 60.0, 600.0
SHARE = 0.1  # of the run without settings
MARGIN = 0.95  # of the budget: the last comparison takes a little more or less than foreseen
LEAST_LEFT = 0.25  # of what was asked for, however long the script took to its first steps


class Budget(Struct, frozen=True, kw_only=True):
    """`code`: asked, run (a share of the planned run), epoch (a share of one epoch: the run is no shorter), usual."""

    seconds: float
    code: str
    whole_s: float = 0.0  # of that run or epoch without settings


def budget(asked_s: float | None, looked_s: float, steps_planned: int | None, ready: Mapping[str, Any]) -> Budget:
    """For the search after a first look, which belongs to what was asked for and not to what is taken by default."""
    if asked_s is not None:
        return Budget(seconds=max(LEAST_LEFT * asked_s, MARGIN * asked_s - looked_s), code="asked")
    step_s = ready.get("step_s")
    epoch_steps = min((length for length in ready.get("loaders") or () if length), default=None)
    if step_s and steps_planned:
        whole_s = step_s * steps_planned
        return Budget(seconds=min(MOST_S, max(LEAST_S, SHARE * whole_s)), code="run", whole_s=whole_s)
    if step_s and epoch_steps and SHARE * step_s * epoch_steps > USUAL_S:
        whole_s = step_s * epoch_steps
        return Budget(seconds=min(MOST_S, SHARE * whole_s), code="epoch", whole_s=whole_s)
    return Budget(seconds=USUAL_S, code="usual")
