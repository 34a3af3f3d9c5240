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

from _flatout_agent.clock import COMPILE
from _flatout_agent.drive import Driver, Parent, TrialCourse, told
from _flatout_agent.profile import look
from _flatout_agent.replay import DEVICE, Replay
from _flatout_agent.wire import PHASES, QUESTION, READY, TRAINING_PHASES, answer_name

POLL_S = 0.002
WINDOWS = 8
MOST_RETRIES = 2  # of a segment whose timed part met the end of an epoch

# Backward passes without a step: with no optimizer in sight, and where there is one that may accumulate for long.
BY_HAND, LONG_ACCUMULATION = 50, 5000


class Mark:
    """The state of the account at one moment, with the device at rest."""

    def __init__(self, driver: Driver) -> None:
        self.samples, self.steps, self.spent = look(driver)
        clock = driver.tape.clock
        self.totals = list(clock.totals)
        self.at = perf_counter_ns()


class SegmentsCourse(TrialCourse):
    """One segment after another, until the front ends the process."""

    def __init__(self, torch: Any, folder: str) -> None:
        self._torch = torch
        self._folder = folder
        self._parent = Parent()
        self._replay = Replay(torch)
        self._yields: dict[int, int] = {}
        self._segment: dict[str, Any] = {}
        self._outcomes: dict[str, Any] = {}
        self._build = 0
        self._warm_left = 0
        self._mark: Mark | None = None
        self._windows: list[list[float]] = []
        self._steps = 0
        self._turned = False  # an epoch has ended since the last step
        self._retries = 0

    def prepare(self, driver: Driver) -> None:
        driver.feed = self._feed(driver)  # from the first batch on, so that there is something to replay
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

    def begin(self, driver: Driver) -> None:
        numerics = {name: kind().numerics(driver.scene) for name, kind in _hot_kinds().items()}
        loaders = [len_of(loader) for loader in driver.scene.loaders]
        ready = {
            "roots": [type(root).__name__ for root in driver.scene.roots],
            "device": driver.scene.device_type,
            "torch": str(self._torch.__version__),
            "loaders": loaders,
            "workers": max((getattr(loader, "num_workers", 0) for loader in driver.scene.loaders), default=0),
            "batch_size": next((getattr(loader, "batch_size", None) for loader in driver.scene.loaders), None),
            "numerics": numerics,
            "early": told(driver.early),
        }
        write_whole(os.path.join(self._folder, READY), ready)
        self._ask(driver)

    # -- a segment -------------------------------------------------------------------------------------------------

    def stepped(self, driver: Driver, now: int) -> bool:
        self._parent.end_if_gone()
        if self._turned and self._retries < MOST_RETRIES and self._segment["mode"] == "real":
            # An epoch's end costs once and not every half second: what was timed across it would say nothing of the loop.
            self._retries += 1
            self._mark = None
            self._warm_left = max(1, self._segment["warm_steps"])
        self._turned = False
        if self._mark is None:
            self._warm_left -= 1
            if self._warm_left <= 0:
                self._start_timing(driver)
            return True
        self._steps += 1
        segment = self._segment
        elapsed = (now - self._mark.at) / 1e9
        if elapsed >= len(self._windows) * segment["timed_s"] / WINDOWS:
            self._windows.append([elapsed, self._steps])
        if elapsed >= segment["timed_s"] and self._steps >= segment["timed_steps"]:
            self._answer(driver, "ok")
            self._ask(driver)
        return True

    def _ask(self, driver: Driver) -> None:
        # Before the next number is known: a script that ends in the switch must not answer with what the last segment timed.
        self._mark = None
        self._steps = 0
        segment = self._wait_for_question()
        while segment["mode"] != "real" and not self._replay.ready():
            self._refuse("nothing-to-replay")
            segment = self._wait_for_question()
        compiling = driver.tape.clock.totals[COMPILE]
        self._began = perf_counter_ns()
        self._outcomes = driver.board.set(segment["knobs"])
        self._build = compiling
        self._replay.mode = "" if segment["mode"] == "real" else segment["mode"]
        if self._replay.mode == DEVICE:
            self._replay.move(driver.scene.device_type)
        else:
            self._replay.forget_moved()
        self._warm_left = max(1, segment["warm_steps"])
        self._turned = False
        self._retries = 0

    def _start_timing(self, driver: Driver) -> None:
        if driver.scene.device_type == "cuda":
            self._torch.cuda.reset_peak_memory_stats()
        self._mark = Mark(driver)
        self._windows = []
        self._steps = 0

    def _answer(self, driver: Driver, status: str) -> None:
        began, ended = self._mark, Mark(driver)
        assert began is not None
        phases = {
            name: (ended.totals[index] - began.totals[index]) / 1e9
            for index, name in enumerate(PHASES)
            if name in TRAINING_PHASES and name != "compile"
        }
        outcomes = {**told(self._outcomes), **{name: o.told() for name, o in driver.board.proofs().items()}}
        steps = ended.steps - began.steps
        result = {
            "id": self._segment["id"],
            "status": status,
            "samples": ended.samples - began.samples or steps,
            "seconds": (ended.spent - began.spent) / 1e9,
            "steps": steps,
            "phases": phases,
            "outcomes": outcomes,
            "classes": driver.board.numerics(),
            "build_s": (ended.totals[COMPILE] - self._build) / 1e9,
            **self._memory(driver),
        }
        write_whole(os.path.join(self._folder, answer_name(result["id"])), result)

    def _refuse(self, code: str) -> None:
        result = {"id": self._segment["id"], "status": "refused", "code": code}
        write_whole(os.path.join(self._folder, answer_name(result["id"])), result)

    def _memory(self, driver: Driver) -> dict[str, Any]:
        if driver.scene.device_type != "cuda":
            return {}
        books = self._torch.cuda.memory_stats()
        return {"memory_peak": books["reserved_bytes.all.peak"], "alloc_retries": books["num_alloc_retries"]}

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
        self._yields.pop(iterator, None)

    def finish(self, driver: Driver) -> None:
        """The script has come to its end: what was timed until then counts."""
        if self._mark is not None and self._steps:
            self._answer(driver, "ended")

    # -- batches ---------------------------------------------------------------------------------------------------

    def _feed(self, driver: Driver) -> Any:
        handover, replay, yields = driver.scene.handover, self._replay, self._yields

        def feed(iterator: Any, original: Any) -> Any:
            done = yields[id(iterator)] = yields.get(id(iterator), getattr(iterator, "_num_yielded", 0)) + 1
            length = self._length(iterator)
            if length is not None and done > length:
                yields.pop(id(iterator), None)
                self._turned = True
                raise StopIteration
            if replay.mode:
                batch = replay.give(iterator)
                if batch is not None:
                    return batch
            try:
                batch = handover.next_batch(iterator, original) if handover.busy else original(iterator)
            except StopIteration:
                self._turned = True
                raise
            if not replay.mode:
                replay.keep(iterator, batch)
            return batch

        return feed

    def _length(self, iterator: Any) -> int | None:
        """Of an epoch: replayed batches are not taken from the loader, and would make it longer."""
        try:
            return len(iterator._index_sampler)
        except Exception:
            return None


def _has_optimizer(torch: Any) -> bool:
    # By type: `isinstance` would wake lazy proxies.
    return any(issubclass(type(one), torch.optim.Optimizer) for one in gc.get_objects())


def len_of(loader: Any) -> int | None:
    try:
        return len(loader)
    except Exception:
        return None


def _hot_kinds() -> dict[str, Any]:
    from _flatout_agent.apply.registry import KNOBS

    return {name: KNOBS[name] for name in ("workers", "persistent_workers", "prefetch_factor", "pin_memory")}


def write_whole(path: str, value: dict[str, Any]) -> None:
    """Whole or not at all: the other side waits for the name."""
    partial = f"{path}.part"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(partial, path)
