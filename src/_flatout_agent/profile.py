"""The knobs of a profile on a real run: put on after a short look at the plain speed, proved, and taken back if slower."""

from __future__ import annotations

from typing import Any

from _flatout_agent.apply.fetching import same_shapes
from _flatout_agent.apply.model import refused
from _flatout_agent.clock import TURN
from _flatout_agent.drive import Course, Driver, told
from _flatout_agent.wire import PHASES, TRAINING_PHASES

PLAIN_STEPS = 12
WARM_STEPS = 12
TIMED_STEPS = 20
SLOWER = 0.97  # of the plain rate: less is not the noise of twenty steps
# Said at the script's end these mean that it is over, not that the knob did nothing.
OVER = frozenset({"optimizer-is-gone", "not-called-yet", "no-step-yet", "no-batch-yet"})

_IN_THE_LOOP = [*(PHASES.index(name) for name in TRAINING_PHASES), TURN]


class Rate:
    """Samples (or steps) and seconds in the loop since it was begun, the compiler's left out."""

    def __init__(self, driver: Driver) -> None:
        self.samples, self.steps, self.spent = look(driver)

    def since(self, driver: Driver) -> float:
        samples, steps, spent = look(driver)
        done = samples - self.samples or steps - self.steps
        return done / (spent - self.spent) * 1e9 if spent > self.spent else 0.0


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
    def __init__(self, values: dict[str, Any], check: bool, made_for: dict[str, Any] | None = None) -> None:
        """`made_for`: the `shapes` of the batches that a profile was measured with, and the `knobs` that are from it."""
        self._values = values
        self._check = check
        self._made_for = made_for or {}
        self._count = 0
        self._rate: Rate | None = None
        self._before = 0.0
        self._proved: set[str] = set()

    def begin(self, driver: Driver) -> None:
        self._rate = Rate(driver)

    def stepped(self, driver: Driver, now: int) -> bool:
        self._count += 1
        plain = PLAIN_STEPS if self._check else 1
        if self._count == plain:
            self._before = self._rate.since(driver) if self._rate else 0.0
            self._put_on(driver)
        elif self._count == plain + WARM_STEPS:
            self._rate = Rate(driver)
        elif self._count == plain + WARM_STEPS + TIMED_STEPS:
            self._judge(driver)
            return False
        return True

    def _put_on(self, driver: Driver) -> None:
        here = driver.scene.shapes()
        others = self._measured_on_others(here)
        outcomes = driver.set({name: value for name, value in self._values.items() if name not in others})
        outcomes.update({name: outcome for name, outcome in driver.early.items() if not outcome})
        for name in others:
            outcomes[name] = refused("other-shapes", recorded=self._made_for["shapes"], here=here)
        driver.write("knobs", step=driver.scene.steps_done, outcomes=told(outcomes), numerics=driver.board.numerics())

    def _measured_on_others(self, here: list[str]) -> list[str]:
        """The profile's knobs, where its batches had other shapes: what was best for those says nothing of these."""
        recorded = self._made_for.get("shapes") or []
        if not recorded or not here or same_shapes(recorded, here):
            return []
        return [name for name in self._made_for.get("knobs") or [] if name in self._values]

    def _judge(self, driver: Driver) -> None:
        after = self._rate.since(driver) if self._rate else 0.0
        proofs = driver.board.proofs()
        self._proved = set(proofs)
        driver.write("proofs", step=driver.scene.steps_done, proofs=told(proofs))
        if self._check and self._before > 0 and after < SLOWER * self._before and driver.board.on:
            knobs = sorted(driver.board.on)
            driver.board.clear()
            details = {"ratio": round(after / self._before, 4), "before": self._before, "after": after}
            driver.write("taken-back", step=driver.scene.steps_done, knobs=knobs, code="slower", details=details)

    def finish(self, driver: Driver) -> None:
        """What a short run had no time to prove, and what a long one has counted since: graphs, batches, recompiles."""
        proofs = driver.board.proofs()
        last = {name: proof for name, proof in proofs.items() if proof.code not in OVER or name not in self._proved}
        last = {name: proof for name, proof in last.items() if proof.code != "optimizer-is-gone"}
        if last:
            driver.write("proofs", step=driver.scene.steps_done, proofs=told(last), at_the_end=True)
