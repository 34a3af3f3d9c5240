"""Settings that look slower than the plain script: turned off and on again in turn, and what is slower is taken back.

Each setting is judged by itself where that can be told, so that a bad one does not take the good ones with it. The
settings of the loader go together, and what is compiled with what it was compiled for.
"""

from __future__ import annotations

from typing import Any

from _flatout_agent.knobs.kept_compilations import APART, TOLD_APART
from _flatout_agent.knobs.registry import KNOBS
from _flatout_agent.modes.driver import LOADER_KNOBS, Driver
from _flatout_agent.modes.median_step_time import Steps, Timed, median, settle, time_steps

SLOWER = 0.97  # of the other arm's speed: less is noise
SLOW_STEP_S = 0.3  # of such steps few are taken

PAIRS, SLOW_PAIRS = 4, 2
WARM, SLOW_WARM = 4, 1
BLOCKS, BLOCK_STEPS, SLOW_BLOCK_STEPS = 3, 3, 1


class Recheck:
    """`on`: what a profile put on. `turn_cost_s`: what a step bears more of the epoch's turn under it than plainly."""

    def __init__(self, driver: Driver, on: dict[str, Any], step_s: float, turn_cost_s: float) -> None:
        self._driver = driver
        self._on = dict(on)
        self._slow = step_s > SLOW_STEP_S
        self._turn_cost_s = turn_cost_s
        self.disturbed = False
        self.taken_back: dict[str, float] = {}  # with the share of the other arm's speed

    def run(self) -> Steps:
        scene = self._driver.scene
        # What is off for a few steps only waits: workers, and what was compiled.
        scene.handover.parks = scene.compilations.open = True
        try:
            yield from self._judge()
        finally:
            scene.handover.parks = False
        self._driver.set({name: value for name, value in self._on.items() if name not in self.taken_back})
        scene.compilations.open = False
        if "compile" in self.taken_back:
            scene.compilations.close(self._driver.torch)

    def _judge(self) -> Steps:
        groups = _groups(self._on)
        share = yield from self._share(groups)
        if share is None or share >= SLOWER:
            return
        for group in groups if len(groups) > 1 else ():
            alone = yield from self._share([group])
            if alone is None:
                return
            if alone < SLOWER:
                self.taken_back.update(dict.fromkeys(group, alone))
        if not self.taken_back:  # none by itself: together
            self.taken_back.update({name: share for group in groups for name in group})

    def _share(self, groups: list[list[str]]) -> Any:
        """The speed with all on ÷ that without these; None where others took the cores."""
        without = {name: value for name, value in self._on.items() if not any(name in group for group in groups)}
        ratios = []
        for pair in range(SLOW_PAIRS if self._slow else PAIRS):
            arms = (without, self._on) if pair % 2 == 0 else (self._on, without)
            first = yield from self._time(arms[0])
            second = yield from self._time(arms[1])
            if first is None or second is None:
                self.disturbed = True
                return None
            off, on = (first, second) if pair % 2 == 0 else (second, first)
            ratios.append(off / (on + (self._turn_cost_s if _touches_loader(groups) else 0.0)))
        return median(ratios)

    def _time(self, values: dict[str, Any]) -> Any:
        driver, found = self._driver, Timed()
        driver.set(values)
        yield from settle(driver, SLOW_WARM if self._slow else WARM)
        yield from time_steps(driver, BLOCKS, SLOW_BLOCK_STEPS if self._slow else BLOCK_STEPS, found)
        return found.step_s


def _groups(on: dict[str, Any]) -> list[list[str]]:
    """What is turned together. What must come before anything is computed stays on."""
    hot = [name for name in on if name in KNOBS and KNOBS[name].hot]
    loader = [name for name in hot if name in LOADER_KNOBS]
    # What is compiled was compiled for these: without one of them it would be compiled anew.
    compiled = [name for name in hot if name == "compile" or name in (*APART, *TOLD_APART)] if "compile" in hot else []
    together = [group for group in (loader, compiled) if group]
    return [*together, *([name] for name in hot if name not in (*loader, *compiled))]


def _touches_loader(groups: list[list[str]]) -> bool:
    return any(name in LOADER_KNOBS for group in groups for name in group)
