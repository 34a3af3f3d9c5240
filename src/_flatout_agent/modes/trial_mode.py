"""Trials inside the running script: the front asks for a segment, the agent switches at a step boundary, warms, times, tells.

They talk by files in the run's folder: `segment.json` asks, `result-N.json` answers. Between an answer and the next
question the script stands still, at a step boundary, with nothing on its way to the device.
"""

from __future__ import annotations

import gc
import json
import os
import time
from time import perf_counter_ns
from typing import Any

from _flatout_agent.core.parent_process import Parent
from _flatout_agent.knobs.knob import applied
from _flatout_agent.modes.driver import Driver, TrialCourse, told
from _flatout_agent.modes.profile_mode import look
from _flatout_agent.timeline.hooks.device_lag import Lag
from _flatout_agent.timeline.phase_totals import COMPILE
from _flatout_agent.trial.batch_source import Feed
from _flatout_agent.trial.loader_ceiling import MODE as SUPPLY
from _flatout_agent.trial.loader_ceiling import Supply
from _flatout_agent.trial.memory_accounting import Books
from _flatout_agent.trial.replayed_batches import DEVICE, HOST, Replay
from _flatout_agent.trial.script_inventory import parts_of
from _flatout_agent.trial.segment_step_times import FirstSteps, StepTimes
from _flatout_agent.wire import PHASES, QUESTION, READY, TRAINING_PHASES, WENT_ON, answer_name

PIN, COMPILED = "pin_memory", "compile"
POLL_S = 0.002
WINDOWS = 8
ENOUGH = 0.6  # of what was to be timed
WARMING = 0.5  # of what a segment may take: then it is timed, warm or not
FEWEST_IN_A_HURRY = 2  # steps
MOST_RETRIES = 2  # of a segment whose timed part met the end of an epoch
FEWEST_DRAINED = 2  # batches: one more or less lies there by chance
LONGEST_EPOCH_S = 60.0  # a segment that is to see an epoch's end waits no longer for it

# Backward passes without a step: with no optimizer in sight, and where there is one that may accumulate for long.
BY_HAND, LONG_ACCUMULATION = 50, 5000

# Phases that the clock keeps apart from training on a batch.
_ASIDE = [place for place, name in enumerate(PHASES) if name not in (*TRAINING_PHASES, "startup", "shutdown")]


class Mark:
    """The state of the account at one moment, with the device at rest."""

    def __init__(self, driver: Driver) -> None:
        self.samples, self.steps, self.spent = look(driver)
        clock = driver.tape.clock
        self.totals = list(clock.totals)
        self.batches = clock.batches
        source = driver.tape.source
        self.ready = driver.scene.handover.lying_ready(source()) if source is not None else None
        self.at = perf_counter_ns()


class SegmentsCourse(TrialCourse):
    """One segment after another, until the front ends the process."""

    def __init__(
        self, torch: Any, folder: str, memory_fraction: float | None = None, endless: bool = False, parent: Parent | None = None
    ) -> None:
        self._torch = torch
        self._folder = folder
        self._fraction = memory_fraction
        self._endless = endless
        self._went_on = False
        self._books = Books(torch)
        self._parent = parent or Parent()
        self._replay = Replay(torch)
        self._feed: Any = None
        self._segment: dict[str, Any] = {}
        self._outcomes: dict[str, Any] = {}
        self._build = self._began = 0
        self._asked = False  # before the first question the memory's account runs from the process's start
        self._warm_left = 0
        self._mark: Mark | None = None
        self._until_turn: dict[str, Any] | None = None  # what was timed when an epoch ended in the midst of it
        self._windows: list[list[float]] = []
        self._steps = 0
        self._retries = 0
        self._turns_left = 0  # of a segment over whole epochs
        self._epoch_ended = False
        self._lag: Lag | None = None
        self._first_steps = FirstSteps(torch)
        self._times: StepTimes | None = None
        self._aside = 0  # nanoseconds of the timed part that were no training

    def prepare(self, driver: Driver) -> None:
        self._first_steps.tape = driver.tape
        driver.feed = self._feed = Feed(driver, self._replay)  # from the first batch on, so that there is something to replay
        self._feed.on_turn = lambda: self._turning(driver)
        self._feed.on_going_on = self._going_on
        driver.tape.after_reading.append(lambda now: self._end_without_steps(driver))

    def _end_without_steps(self, driver: Driver) -> None:
        """Steps are what trials hold on to: a script that updates its parameters by hand would be waited for in vain."""
        backwards = driver.tape.clock.backwards
        if driver.tape.ticks or backwards < BY_HAND:
            return
        if backwards < LONG_ACCUMULATION and _has_optimizer(self._torch):
            return
        write_whole(os.path.join(self._folder, READY), {"refused": "by-hand", "backwards": backwards})
        os._exit(0)

    def found_step(self) -> None:
        self._first_steps.ended()

    def begin(self, driver: Driver) -> None:
        ready = {**parts_of(driver, self._torch, self._books, self._fraction), **self._first_steps.told()}
        write_whole(os.path.join(self._folder, READY), ready)
        self._ask(driver)

    # -- a segment -------------------------------------------------------------------------------------------------

    def stepped(self, driver: Driver, now: int) -> bool:
        self._parent.end_if_gone()
        if self._feed.supply is not None:
            if self._feed.supply.over:
                self._answer_supply(driver, self._feed.supply)
                self._ask(driver)
        elif self._segment.get("epochs"):
            self._stepped_in_epochs(driver)
        else:
            self._stepped_in_segment(driver, now)
        return True

    def _stepped_in_segment(self, driver: Driver, now: int) -> None:
        self._epoch_ended = self._epoch_ended or self._feed.turned
        if self._feed.turned and self._until_turn is not None:
            self._write_answer(driver, "ok", self._until_turn)
            self._ask(driver)
            return
        if self._feed.turned and self._retries < MOST_RETRIES and self._segment["mode"] == "real":
            # An epoch's end costs once and not every half second: what was timed across it would say nothing of the loop.
            self._retries += 1
            driver.scene.handover.park_over_turns(self._retries < MOST_RETRIES)
            self._mark = None
            self._warm_left = max(1, self._segment["warm_steps"])
        self._feed.turned = False
        if self._mark is None:
            # Batches that lay ready before the switch came at no price: they warm nothing.
            if self._segment["mode"] != "real" or not driver.scene.handover.unsettled():
                self._warm_left -= 1
            if self._warm_left <= 0 or (not self._builds() and self._over(now, WARMING)):
                self._start_timing(driver)
            return
        self._steps += 1
        if self._lag is not None:
            self._lag.sample()
        if self._times is not None and self._times.ended(now, self._feed.waited):
            self._note_aside(driver, self._times)
        segment = self._segment
        elapsed = (now - self._mark.at - self._aside) / 1e9
        if elapsed >= len(self._windows) * segment["timed_s"] / WINDOWS:
            self._windows.append([elapsed, self._steps])
        if self._timed_enough(elapsed, now) and self._seen_enough(now):
            self._answer(driver, "ok")
            self._ask(driver)

    def _stepped_in_epochs(self, driver: Driver) -> None:
        """From the first step after a turn to the first step after the last: every turn counts, with all that it costs."""
        if self._mark is not None:
            self._steps += 1
        if self._feed.epoch_turned:
            self._feed.epoch_turned = False
            if self._mark is None:
                if not driver.scene.handover.unsettled():
                    self._start_timing(driver)
            else:
                self._turns_left -= 1
                if not self._turns_left:
                    self._answer(driver, "ok")
                    self._ask(driver)

    def _timed_enough(self, elapsed: float, now: int) -> bool:
        segment = self._segment
        wanted = elapsed >= segment["timed_s"] and self._steps >= segment["timed_steps"]
        return wanted or (self._steps >= FEWEST_IN_A_HURRY and self._over(now))

    def _over(self, now: int, share: float = 1.0) -> bool:
        """Whether this share of the time that the segment may take has passed; most may take what they need."""
        limit = self._segment.get("limit_s")
        return limit is not None and (now - self._began) / 1e9 >= share * limit

    def _seen_enough(self, now: int) -> bool:
        """A larger batch must get through what comes at the end of an epoch, too: its validation has batches of its own. The
        epoch is ended for it, because waiting for its end would take longer than all the rest."""
        if not self._segment.get("through_epoch") or self._epoch_ended:
            return True
        self._feed.cut = True
        return (now - self._began) / 1e9 > LONGEST_EPOCH_S

    def _ask(self, driver: Driver) -> None:
        # Before the next number is known: a script that ends in the switch must not answer with what the last segment timed.
        self._mark = self._until_turn = None
        self._steps = 0
        segment = self._next_question(driver)
        if self._asked:
            self._books.begin(driver.scene.device_type, tidy=segment.get("batch") is not None)
        self._asked = True
        driver.scene.compilations.open = True
        driver.scene.compilations.batch = segment.get("batch")
        compiling = driver.tape.clock.totals[COMPILE]
        self._began = perf_counter_ns()
        self._outcomes = driver.set(segment["knobs"])
        self._build = compiling
        self._feed.supply = Supply(segment) if segment["mode"] == SUPPLY else None
        self._feed.hides_turns = self._endless and bool(segment.get("epochs"))
        self._feed.endless = self._endless and not segment.get("epochs") and not segment.get("through_epoch")
        self._replay.mode = segment["mode"] if segment["mode"] not in ("real", SUPPLY) else ""
        if self._replay.mode == DEVICE:
            self._replay.move(driver.scene.device_type)
        else:
            self._replay.forget_moved()
        self._replay.pin(self._replay.mode == HOST and segment["knobs"].get(PIN) == "on" and driver.scene.has_cuda())
        driver.scene.handover.parks = not segment.get("epochs")
        self._warm_left = max(1, segment["warm_steps"])
        self._turns_left = segment.get("epochs", 0)
        self._feed.epoch_turned = False
        self._feed.turned = self._feed.cut = self._feed.brief = self._epoch_ended = False
        self._retries = 0

    def _next_question(self, driver: Driver) -> dict[str, Any]:
        """The next one that can be done; the others are refused."""
        while True:
            segment = self._wait_for_question()
            code = self._why_not(driver, segment)
            if not code:
                return segment
            self._refuse(code)

    def _why_not(self, driver: Driver, segment: dict[str, Any]) -> str:
        if segment["mode"] == SUPPLY:
            return "" if driver.scene.loaders else "no-loader"
        if segment["mode"] != "real" and not self._replay.ready():
            return "nothing-to-replay"
        return "" if self._replay.resize(segment.get("batch")) else "batches-do-not-add-up"

    def _note_aside(self, driver: Driver, times: StepTimes) -> None:
        """A step with something else in it: the clock may know what. On a card the host's time of a step says nothing."""
        assert self._mark is not None
        driver.tape.tell()
        totals = driver.tape.clock.totals
        known = sum(totals[place] - self._mark.totals[place] for place in _ASIDE)
        on_card = driver.scene.device_type == "cuda"
        self._aside = max(known, self._aside + (0 if on_card else times.excess()))

    def _start_timing(self, driver: Driver) -> None:
        on_card = driver.scene.device_type == "cuda"
        self._lag = Lag(self._torch) if on_card else None
        self._mark = Mark(driver)
        self._aside = 0
        over_epochs = bool(self._segment.get("epochs"))
        self._times = None if over_epochs else StepTimes(self._torch, on_card, self._mark.at, self._feed.waited)
        self._windows = []
        self._steps = 0
        if self._builds():
            self._began = perf_counter_ns()

    def _builds(self) -> bool:
        """What is compiled is not there, or not recorded, before its first steps are done: these are not to be hurried."""
        return bool(self._segment["knobs"].get(COMPILED))

    def _turning(self, driver: Driver) -> None:
        """An epoch ends in the middle of what is timed: what was timed so far may be enough."""
        segment = self._segment
        if self._mark is None or segment["mode"] != "real" or segment.get("epochs"):
            return
        elapsed = (perf_counter_ns() - self._mark.at) / 1e9
        if self._feed.brief or (elapsed >= ENOUGH * segment["timed_s"] and self._steps >= ENOUGH * segment["timed_steps"]):
            self._until_turn = self._timed(driver)

    def _answer(self, driver: Driver, status: str) -> None:
        self._write_answer(driver, status, self._timed(driver))

    def _timed(self, driver: Driver) -> dict[str, Any]:
        assert self._mark is not None
        told = timed(driver, self._mark, self._build, self._outcomes)
        if not self._segment.get("epochs"):
            # The turn of an epoch is no part of its steps; a segment over whole epochs is about what it costs.
            turn = told["aside"].get("turn", 0.0)
            told = {**told, "seconds": told["seconds"] - turn, "aside_s": told["aside_s"] + turn}
        return {**told, **(self._times.told() if self._times is not None else {})}

    def _write_answer(self, driver: Driver, status: str, timed_so_far: dict[str, Any]) -> None:
        result = {
            "id": self._segment["id"],
            "status": status,
            **timed_so_far,
            "epoch_ended": self._epoch_ended,
            **(self._lag.told() if self._lag is not None else {}),
            **self._books.told(driver.scene.device_type, self._replay.bytes_on(driver.scene.device_type)),
        }
        # No batch came from the loader that could show it.
        if self._replay.is_pinned and self._outcomes[PIN].status == "applied":
            result["outcomes"][PIN] = applied("replayed").told()
        write_whole(os.path.join(self._folder, answer_name(result["id"])), result)

    def _answer_supply(self, driver: Driver, supply: Supply) -> None:
        if not supply.usable:
            self._refuse("epoch-too-short")
            return
        result = {
            "id": self._segment["id"],
            "status": "ok",
            "samples": supply.samples or supply.steps,
            "seconds": supply.spent / 1e9,
            "steps": supply.steps,
            "outcomes": seen(driver, self._outcomes),
            "classes": driver.board.numerics(),
        }
        write_whole(os.path.join(self._folder, answer_name(result["id"])), result)

    def _refuse(self, code: str) -> None:
        result = {"id": self._segment["id"], "status": "refused", "code": code}
        write_whole(os.path.join(self._folder, answer_name(result["id"])), result)

    def _wait_for_question(self) -> dict[str, Any]:
        path = os.path.join(self._folder, QUESTION)
        last = self._segment.get("id")
        while True:
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    asked: dict[str, Any] = json.load(file)
                if asked["id"] != last:
                    self._segment = asked
                    return asked
            self._parent.end_if_gone()
            time.sleep(POLL_S)

    def iterator_began(self, iterator: int) -> None:
        self._feed.iterator_began(iterator)

    def _going_on(self) -> None:
        """A script that knows how long its epochs are may not bear it: then the front starts it again without."""
        if not self._went_on:
            self._went_on = True
            write_whole(os.path.join(self._folder, WENT_ON), {})

    def finish(self, driver: Driver) -> None:
        """The script has come to its end: what was timed until then counts."""
        if self._until_turn is not None:
            self._write_answer(driver, "ended", self._until_turn)  # told while its workers were alive
        elif self._mark is not None and self._steps:
            self._answer(driver, "ended")


def _has_optimizer(torch: Any) -> bool:
    # By type: `isinstance` would wake lazy proxies.
    return any(issubclass(type(one), torch.optim.Optimizer) for one in gc.get_objects())


def seen(driver: Driver, outcomes: dict[str, Any]) -> dict[str, Any]:
    """What became of each knob, with its proof where there is one by now."""
    return {**told(outcomes), **told(driver.board.proofs())}


def timed(driver: Driver, began: Mark, build: int, outcomes: dict[str, Any]) -> dict[str, Any]:
    """What was done since `began`, and what became of each knob."""
    ended = Mark(driver)
    phases = {
        name: (ended.totals[index] - began.totals[index]) / 1e9 for index, name in enumerate(PHASES) if name in TRAINING_PHASES
    }
    steps = ended.steps - began.steps
    seconds = (ended.spent - began.spent) / 1e9
    aside = {PHASES[place]: (ended.totals[place] - began.totals[place]) / 1e9 for place in _ASIDE}
    return {
        "samples": ended.samples - began.samples or steps,
        "seconds": seconds,
        "aside_s": max(0.0, (ended.at - began.at) / 1e9 - seconds),
        "aside": {name: spent for name, spent in aside.items() if spent > 0},
        "steps": steps,
        "drained": drained(began, ended),
        "phases": phases,
        "outcomes": seen(driver, outcomes),
        "classes": driver.board.numerics(),
        "build_s": (ended.totals[COMPILE] - build) / 1e9,
    }


def drained(began: Mark, ended: Mark) -> float:
    """The share of the batches that used up what lay ready: so many fewer were fetched meanwhile, and that cannot go on."""
    if began.ready is None or ended.ready is None or began.ready - ended.ready < FEWEST_DRAINED:
        return 0.0
    batches = ended.batches - began.batches
    return (began.ready - ended.ready) / batches if batches > 0 else 0.0


def write_whole(path: str, value: dict[str, Any]) -> None:
    """Whole or not at all: the other side waits for the name."""
    partial = f"{path}.part"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(partial, path)
