"""How long a search may take, and what is there for confirming by whole runs: as was asked for, or by the run that it is for.

What was asked for holds the first look, the search and the confirmation. Where nothing was asked for, the search has a tenth
of the planned run, and the confirmation comes on top: as long as two pairs of runs take that are ended early.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from flatout.base.records import Struct
from flatout.tune.search.run_length import steps_of_an_epoch

USUAL_S = 90.0  # where nothing tells how long the run will be
LEAST_S, MOST_S = 60.0, 600.0  # of a search; the most holds the confirmation, too
SHARE = 0.1  # of the run without settings
MARGIN = 0.95  # of what was asked for: the last comparison takes a little more or less than foreseen
LEAST_LEFT = 0.25  # of what was asked for, however long the script took to its first steps
CONFIRM_SHARE = 0.4  # of what is left of it, at most

RUNS = 4  # two pairs
STARTS = 2.0  # of a script, for each of these runs: turn, validation and exit take their time
LEAST_RUN_S = 4.0  # beside them
LEAST_PAIR_S = 4.0  # beside two starts, where one pair is all
LOOP_S = 3.0  # of a run that is ended early
STEPS_OF_A_RUN = 22  # or so many steps, of which ten settle it …
SETTLING, SLOW_LOOP_S = 10, 11.0  # … or so long after these: slow steps scatter little
ROUNDED_S, IN_MINUTES_S = 10, 120  # a budget that is named is a round one


class Costs(Struct, frozen=True, kw_only=True):
    """Of this script, as its first look showed."""

    looked_s: float  # until its first steps, with all attempts
    start_s: float  # the same of the one child that got there
    step_s: float = 0.0  # 0 where it is not known

    @property
    def loop_s(self) -> float:
        """What the loop of a run that is ended early takes: until it has settled, and what is timed."""
        return max(LOOP_S, min(STEPS_OF_A_RUN * self.step_s, SETTLING * self.step_s + SLOW_LOOP_S))

    @property
    def pair_s(self) -> float:
        """One plain and one tuned run: less confirms nothing."""
        more_s = 2 * self.loop_s if self.loop_s > LOOP_S else LEAST_PAIR_S
        return 2 * self.start_s + more_s

    @property
    def pairs_s(self) -> float:
        """Two pairs."""
        more_s = self.loop_s if self.loop_s > LOOP_S else LEAST_RUN_S
        return RUNS * (STARTS * self.start_s + more_s)


class Budget(Struct, frozen=True, kw_only=True):
    """`code`: asked, run (a share of the planned run), epoch (a share of one epoch: the run is no shorter), usual."""

    code: str
    search_s: float
    confirm_s: float = 0.0  # 0 where not even one pair would fit
    whole_s: float = 0.0  # of that run or epoch without settings

    @property
    def is_least(self) -> bool:
        """More than a tenth of a short run."""
        return self.code == "run" and self.search_s > 1.01 * SHARE * self.whole_s

    @property
    def total_s(self) -> float:
        """Beside the first look."""
        return self.search_s + self.confirm_s


def budget(asked_s: float | None, costs: Costs, steps_planned: int | None, ready: Mapping[str, Any]) -> Budget:
    """After a first look, which belongs to what was asked for and not to what is taken by default."""
    if asked_s is not None:
        left_s = max(LEAST_LEFT * asked_s, MARGIN * asked_s - costs.looked_s)
        kept_s = reserve_s(left_s, costs)
        return Budget(code="asked", search_s=left_s - kept_s, confirm_s=kept_s)
    code, seconds, whole_s = _by_worth(costs.step_s, steps_planned, ready)
    kept_s = min(costs.pairs_s, max(MOST_S / 2, costs.pair_s), MOST_S - USUAL_S)
    search_s = min(seconds, MOST_S - kept_s)
    confirm_s = min(costs.pairs_s, MOST_S - search_s)
    return Budget(code=code, search_s=search_s, confirm_s=confirm_s if confirm_s >= costs.pair_s else 0.0, whole_s=whole_s)


def _by_worth(step_s: float, steps_planned: int | None, ready: Mapping[str, Any]) -> tuple[str, float, float]:
    """Of a search by default: its code, its seconds, and those of the run or epoch that it is for."""
    epoch_steps = steps_of_an_epoch(ready)
    if step_s and steps_planned:
        whole_s = step_s * steps_planned
        return "run", min(MOST_S, max(LEAST_S, SHARE * whole_s)), whole_s
    if step_s and epoch_steps and SHARE * step_s * epoch_steps > USUAL_S:
        whole_s = step_s * epoch_steps
        return "epoch", min(MOST_S, SHARE * whole_s), whole_s
    return "usual", USUAL_S, 0.0


def reserve_s(left_s: float, costs: Costs) -> float:
    """What a search leaves for confirming of what was asked for; nothing where not even one pair would fit."""
    wanted = min(CONFIRM_SHARE * left_s, costs.pairs_s)
    return wanted if wanted >= costs.pair_s else 0.0


def room_s(granted: Budget, used_s: float, build_s: float) -> float:
    """For the confirmation, after a search that took so long: what was kept back for it at least. What is compiled is built in
    its runs, too, and comes on top where nothing was asked for."""
    left_s = max(granted.confirm_s, granted.total_s - used_s)
    if granted.code == "asked" or not granted.confirm_s:
        return left_s
    return left_s + min(build_s * RUNS / 2, max(0.0, MOST_S - granted.total_s))


def to_ask_for(costs: Costs, search_s: float = 0.0) -> str:
    """The `--budget` that leaves so long for the search and has room for a pair of whole runs."""
    for_search = min(search_s / (1 - CONFIRM_SHARE), search_s + costs.pairs_s)
    left_s = max(for_search, costs.pair_s / CONFIRM_SHARE)
    return as_option((left_s + costs.looked_s) / MARGIN)


def as_option(seconds: float) -> str:
    """As `--budget` is written, rounded up."""
    rounded = ROUNDED_S * math.ceil(seconds / ROUNDED_S)
    return f"{rounded}s" if rounded <= IN_MINUTES_S else f"{math.ceil(seconds / 60)}m"
