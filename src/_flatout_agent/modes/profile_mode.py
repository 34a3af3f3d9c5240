"""The settings of a profile on a real run: put on as soon as there is something to put them on, proved, and kept if they help.

A profile that was confirmed by whole runs says what a plain step takes: its settings come on after the first steps, at the
same step in every run. What looks slower than that is compared with the plain script in the run itself, in turn
(`slow_settings_check.py`), and only then taken back.
"""

from __future__ import annotations

import os
from typing import Any, Iterator, Optional

from _flatout_agent.knobs.knob import refused
from _flatout_agent.knobs.loader.fetch_randomness import same_shapes
from _flatout_agent.modes.driver import Course, Driver, told
from _flatout_agent.modes.median_step_time import Account, Steps, Timed, settle, time_steps, turn_s, wait
from _flatout_agent.modes.slow_settings_check import SLOWER, Recheck
from _flatout_agent.timeline.phase_totals import TURN
from _flatout_agent.wire import PHASES, TRAINING_PHASES

PLAIN_STEPS = 4  # of a profile that says nothing of the plain speed
WARM_STEPS = 12
BLOCKS, BLOCK_STEPS = 5, 4
LATER = 200  # steps, where others took the cores …
MOST_TRIES = 4  # … so often: what was confirmed stays then
# Said at the script's end these mean that it is over, not that the knob did nothing.
OVER = frozenset({"optimizer-is-gone", "not-called-yet", "no-step-yet", "no-batch-yet"})

_IN_THE_LOOP = [*(PHASES.index(name) for name in TRAINING_PHASES), TURN]


def look(driver: Driver) -> tuple[int, int, int]:
    """With the device at rest, so that nothing queued belongs to the next part."""
    driver.synchronize()
    driver.tape.tell()
    clock = driver.tape.clock
    return clock.samples, clock.steps, loop_ns(driver)


def loop_ns(driver: Driver) -> int:
    """Spent in the loop so far, as far as the tape was read; the compiler's time left out."""
    totals = driver.tape.clock.totals
    return int(sum(totals[phase] for phase in _IN_THE_LOOP))


class ProfileCourse(Course):
    def __init__(
        self,
        values: dict[str, Any],
        check: bool,
        made_for: dict[str, Any] | None = None,
        plain: dict[str, float] | None = None,
        put_off: dict[str, int] | None = None,
    ) -> None:
        """`made_for`: the `shapes` of the batches that a profile was measured with, and the `knobs` that are from it; `plain`:
        the seconds of a plain step (`step_s`) and of a turn of the epoch (`turn_s`) then; `put_off`: what comes on later, and
        after which step."""
        self._later = {name: step for name, step in (put_off or {}).items() if name in values}
        self._wanted = values
        self._values = {name: value for name, value in values.items() if name not in self._later}
        # Processes that train together must not part ways: each would judge for itself.
        self._check = check and int(os.environ.get("WORLD_SIZE") or 1) == 1
        self._made_for = made_for or {}
        self._plain_s: Optional[float] = (plain or {}).get("step_s")
        self._plain_turn_s: Optional[float] = (plain or {}).get("turn_s")
        self._proved: set[str] = set()
        self._rechecking = False
        self._sequence: Iterator[None] = iter(())

    def begin(self, driver: Driver) -> None:
        if self._wanted:
            self._sequence = self._run(driver)
            next(self._sequence, None)

    def stepped(self, driver: Driver, now: int) -> bool:
        for _ in self._sequence:
            return True
        return False

    def _run(self, driver: Driver) -> Steps:
        if self._check and self._plain_s is None:
            before = Account(driver)
            found = Timed()
            yield from time_steps(driver, PLAIN_STEPS, 1, found)
            self._plain_s, self._plain_turn_s = found.step_s, turn_s(before, Account(driver))
        later = sorted(self._later.items(), key=lambda one: one[1])
        if self._values:
            self._put_on(driver)
            yield from self._watch_until(driver, later[0][1] if later else None)
        for place, (name, step) in enumerate(later):
            yield from wait(max(0, step - driver.scene.steps_done))
            self._put_on_late(driver, name)
            yield from self._watch_until(driver, later[place + 1][1] if place + 1 < len(later) else None)

    def _watch_until(self, driver: Driver, step: Optional[int]) -> Steps:
        """What comes on later comes on at its step, whatever of this was put off because others took the cores."""
        for _ in self._watch(driver):
            yield
            if step is not None and driver.scene.steps_done >= step and not self._rechecking:
                break

    def _put_on_late(self, driver: Driver, name: str) -> None:
        """Beside what is on by now: what was taken back stays off."""
        self._values = {**driver.board.on, name: self._wanted[name]}
        self._put_on(driver, [name])

    def _watch(self, driver: Driver) -> Steps:
        """Times what was put on, proves it, and takes back what is slower than the plain script."""
        since = Account(driver)
        yield from settle(driver, WARM_STEPS)
        for place in range(MOST_TRIES):
            found = Timed()
            yield from time_steps(driver, BLOCKS, BLOCK_STEPS, found)
            if place == 0:
                self._prove(driver)
            if not self._check or self._plain_s is None:
                return
            disturbed = found.step_s is None
            if found.step_s is not None:
                disturbed = yield from self._judge(driver, found.step_s, since)
            if not disturbed:
                return
            yield from wait(LATER)

    def _prove(self, driver: Driver) -> None:
        proofs = driver.board.proofs()
        self._proved = set(proofs)
        driver.write("proofs", step=driver.scene.steps_done, proofs=told(proofs))

    def _judge(self, driver: Driver, step_s: float, since: Account) -> Any:
        """Whether it was disturbed, and is to be done again."""
        now, plain_s = Account(driver), self._plain_s or 0.0
        turn = turn_s(since, now)
        a_step = (now.turns - since.turns) / max(1, now.steps - since.steps)
        turn_cost_s = a_step * (turn - self._plain_turn_s) if turn is not None and self._plain_turn_s is not None else 0.0
        took_s = step_s + turn_cost_s
        on = driver.board.on
        driver.write("judged", step=driver.scene.steps_done, step_s=took_s, plain_step_s=plain_s)
        if not on or took_s * SLOWER <= plain_s:
            return False
        check = Recheck(driver, on, step_s, turn_cost_s)
        self._rechecking = True
        yield from check.run()
        self._rechecking = False
        for name, share in check.taken_back.items():
            details = {"ratio": round(share, 4)}
            driver.write("taken-back", step=driver.scene.steps_done, knobs=[name], code="slower-in-turn", details=details)
        return check.disturbed

    def _put_on(self, driver: Driver, told_of: list[str] | None = None) -> None:
        """`told_of`: what is new; of the rest it was told before."""
        here = driver.scene.shapes()
        others = self._measured_on_others(here)
        outcomes = driver.set({name: value for name, value in self._values.items() if name not in others})
        outcomes.update({name: outcome for name, outcome in driver.early.items() if not outcome})
        for name in others:
            outcomes[name] = refused("other-shapes", recorded=self._made_for["shapes"], here=here)
        if told_of is not None:
            outcomes = {name: outcome for name, outcome in outcomes.items() if name in told_of}
        driver.write("knobs", step=driver.scene.steps_done, outcomes=told(outcomes), numerics=driver.board.numerics())

    def _measured_on_others(self, here: list[str]) -> list[str]:
        """The profile's knobs, where its batches had other shapes: what was best for those says nothing of these."""
        recorded = self._made_for.get("shapes") or []
        if not recorded or not here or same_shapes(recorded, here):
            return []
        return [name for name in self._made_for.get("knobs") or [] if name in self._values]

    def finish(self, driver: Driver) -> None:
        """What a short run had no time to prove, and what a long one has counted since: graphs, batches, recompiles."""
        proofs = driver.board.proofs()
        last = {name: proof for name, proof in proofs.items() if proof.code not in OVER or name not in self._proved}
        last = {name: proof for name, proof in last.items() if proof.code != "optimizer-is-gone"}
        if last:
            driver.write("proofs", step=driver.scene.steps_done, proofs=told(last), at_the_end=True)
