"""`run --auto`: knobs that leave every bit as it is, tried inside the real training while it goes on.

The front asks for segments by the same files as in trials, but nobody waits: between an answer and the next question the script
trains on under what it has. No batch is replayed, no step is taken twice, nothing is started again. A knob that is not found to
be exact for this script is refused here, whatever the front asks for. Where no question comes any more, the script goes
back to what was last known to be good, and the course is over.
"""

from __future__ import annotations

import json
import os
from time import perf_counter_ns
from typing import Any

from _flatout_agent.knobs.knob import EXACT, refused
from _flatout_agent.knobs.loader.loader_knob import LoaderKnob
from _flatout_agent.knobs.registry import KNOBS
from _flatout_agent.modes.driver import Course, Driver, told
from _flatout_agent.modes.trial_mode import Mark, timed, write_whole
from _flatout_agent.timeline.phase_totals import COMPILE
from _flatout_agent.wire import AUTO_OWNER, QUESTION, READY, answer_name

LOOK_EVERY = 20_000_000  # nanoseconds between two looks for a question
PATIENCE = 60_000_000_000  # without a question: whoever asked is gone
MOST_RETRIES = 2  # of a segment whose timed part met the end of an epoch

WANTED = ("workers", "persistent_workers", "prefetch_factor", "pin_memory", "non_blocking", "device_prefetch", "gc_policy")


class AutoCourse(Course):
    """`base`: what a profile or flags put on from the start; it stays on in every segment."""

    def __init__(self, folder: str, base: dict[str, Any]) -> None:
        self._folder = folder
        self._base = base
        self._segment: dict[str, Any] = {}
        self._outcomes: dict[str, Any] = {}
        self._mark: Mark | None = None
        self._warm_left = self._steps = self._retries = self._build = 0
        self._answered = True
        self._turned = False  # an epoch has begun since the last step
        self._due = self._heard = 0

    def begin(self, driver: Driver) -> None:
        self._heard = perf_counter_ns()
        if self._base:
            outcomes = driver.set(self._base)
            outcomes.update({name: outcome for name, outcome in driver.early.items() if not outcome})
            driver.write("knobs", step=driver.scene.steps_done, outcomes=told(outcomes), numerics=driver.board.numerics())
        scene = driver.scene
        ready = {
            "device": scene.device_type,
            "torch": str(driver.torch.__version__),
            "workers": max((getattr(loader, "num_workers", 0) for loader in scene.loaders), default=0),
            "batch_size": next((getattr(loader, "batch_size", None) for loader in scene.loaders), None),
            "loaders": len(scene.loaders),
            "numerics": {name: class_of(driver, name) for name in WANTED if name not in self._base},
        }
        if self._is_ours():
            write_whole(os.path.join(self._folder, READY), ready)

    def _is_ours(self) -> bool:
        """One process is asked; of several that train together none is: they must not part ways."""
        if int(os.environ.get("WORLD_SIZE") or 1) > 1:
            self._heard = -PATIENCE
            return False
        try:
            os.close(os.open(os.path.join(self._folder, AUTO_OWNER), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            self._heard = -PATIENCE
            return False
        return True

    def stepped(self, driver: Driver, now: int) -> bool:
        turned, self._turned = self._turned, False
        if self._answered:
            return self._look(driver, now)
        if turned and self._retries < MOST_RETRIES:
            # What an epoch's end costs, it costs once: timed across it, a segment would say nothing of the loop.
            self._retries += 1
            self._mark = None
            self._warm_left = max(1, self._segment["warm_steps"])
        if self._mark is None:
            # Batches that lay ready before the switch came at no price: they warm nothing.
            self._warm_left -= not driver.scene.handover.unsettled()
            if self._warm_left <= 0:
                self._mark, self._steps = Mark(driver), 0
            return True
        self._steps += 1
        elapsed = (now - self._mark.at) / 1e9
        if elapsed >= self._segment["timed_s"] and self._steps >= self._segment["timed_steps"]:
            self._answer(driver, "ok")
        return True

    def _look(self, driver: Driver, now: int) -> bool:
        if now < self._due:
            return True
        self._due = now + LOOK_EVERY
        asked = self._question()
        if asked is not None:
            self._heard = now
            self._take(driver, asked)
            return not asked.get("final")
        if now - self._heard > PATIENCE:
            self._set(driver, self._segment.get("standing") or {})
            return False
        return True

    def _question(self) -> dict[str, Any] | None:
        try:
            with open(os.path.join(self._folder, QUESTION), encoding="utf-8") as file:
                asked: dict[str, Any] = json.load(file)
        except (OSError, ValueError):
            return None
        return asked if asked["id"] != self._segment.get("id") else None

    def _take(self, driver: Driver, asked: dict[str, Any]) -> None:
        self._segment = asked
        if asked.get("mode", "real") != "real" or asked.get("epochs"):
            # Of a training that counts no batch is drawn, kept or given twice.
            write_whole(
                os.path.join(self._folder, answer_name(asked["id"])),
                {"id": asked["id"], "status": "refused", "code": "real-run"},
            )
            return
        self._build = driver.tape.clock.totals[COMPILE]
        self._outcomes = self._set(driver, asked["knobs"])
        if asked.get("final"):
            driver.write("auto", step=driver.scene.steps_done, outcomes=told(self._outcomes), on=driver.board.on)
            if self._base:
                driver.write("proofs", step=driver.scene.steps_done, proofs=told(driver.board.proofs()))
            return
        self._answered = False
        self._mark, self._retries = None, 0
        self._warm_left = max(1, asked["warm_steps"])

    def _set(self, driver: Driver, knobs: dict[str, Any]) -> dict[str, Any]:
        exact = {name: value for name, value in knobs.items() if name in WANTED and class_of(driver, name) == EXACT}
        outcomes = driver.set({**exact, **self._base})
        return {**outcomes, **{name: refused("not-exact-here") for name in knobs if name not in exact}}

    def _answer(self, driver: Driver, status: str) -> None:
        assert self._mark is not None
        result = {"id": self._segment["id"], "status": status, **timed(driver, self._mark, self._build, self._outcomes)}
        result["outcomes"].update(told({name: one for name, one in self._outcomes.items() if one.code == "not-exact-here"}))
        write_whole(os.path.join(self._folder, answer_name(result["id"])), result)
        self._answered, self._mark = True, None
        self._heard = perf_counter_ns()

    def iterator_began(self, iterator: int) -> None:
        self._turned = True

    def finish(self, driver: Driver) -> None:
        """Nothing to tell: what was not timed to its end is not judged, and the front sees that the script is gone."""


def class_of(driver: Driver, name: str) -> str:
    """As found for this script. Every change of a loader goes by the same handover, and is exact only where all of it is."""
    knob = KNOBS[name]()
    if isinstance(knob, LoaderKnob):
        return LoaderKnob.numerics(knob, driver.scene)
    return knob.numerics(driver.scene)
