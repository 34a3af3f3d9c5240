"""What a step takes under the settings of the moment: the median over short blocks of steps, turns of the epoch apart."""

from __future__ import annotations

from typing import Any, Iterator, Optional

from _flatout_agent.modes.driver import Driver
from _flatout_agent.timeline.hooks.load_by_others import OtherLoad
from _flatout_agent.timeline.phase_totals import TURN
from _flatout_agent.wire import PHASES, TRAINING_PHASES

_STEADY = [PHASES.index(name) for name in TRAINING_PHASES]
LONGEST_SETTLING = 64  # steps: batches that were fetched before are delivered by then

Steps = Iterator[None]  # one `yield` for each step that is waited for


class Account:
    """Steps, steady nanoseconds and turns so far, with the device at rest."""

    def __init__(self, driver: Driver) -> None:
        driver.synchronize()
        driver.tape.tell()
        clock = driver.tape.clock
        self.steps, self.turns, self.turn_ns = clock.steps, clock.turns, clock.totals[TURN]
        self.steady_ns = sum(clock.totals[phase] for phase in _STEADY) - clock.script_outside


class Timed:
    """The result of `time_steps`: `step_s` is None where nothing was timed, or others took the cores meanwhile."""

    step_s: Optional[float] = None
    disturbed = False


def wait(steps: int) -> Steps:
    for _ in range(steps):
        yield


def settle(driver: Driver, steps: int) -> Steps:
    """So many steps, and until no batch comes any more that was fetched under other settings."""
    yield from wait(steps)
    for _ in range(LONGEST_SETTLING):
        if not driver.scene.handover.unsettled():
            break
        yield


def time_steps(driver: Driver, blocks: int, steps: int, found: Timed) -> Steps:
    """Fills `found`. One stall moves one block, and not their median."""
    load, values = OtherLoad(), []
    before = Account(driver)
    for _ in range(blocks):
        yield from wait(steps)
        after = Account(driver)
        if after.steps > before.steps:
            values.append((after.steady_ns - before.steady_ns) / (after.steps - before.steps) / 1e9)
        before = after
    found.disturbed = load.took_the_cores()
    found.step_s = median(values) if values and not found.disturbed else None


def median(values: list[float]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def turn_s(before: Any, after: Any) -> Optional[float]:
    """A turn of the epoch between the two accounts."""
    turns = after.turns - before.turns
    return (after.turn_ns - before.turn_ns) / turns / 1e9 if turns > 0 else None
