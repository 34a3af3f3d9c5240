"""Puts knobs on the running script at its step boundaries: a profile's once, or segment after segment as the front asks.

Begins with the first optimizer step: before, there is nothing to put a knob on. Knobs that must come before anything
is computed are put on as soon as torch is there.
"""

from __future__ import annotations

import os
from time import perf_counter_ns
from typing import Any, Callable
from weakref import ref

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.module_hooks import are_walked
from _flatout_agent.knobs.knob import UNKNOWN, Outcome, Scene, alive, refused
from _flatout_agent.knobs.registry import KNOBS
from _flatout_agent.knobs.root_modules import RootFinder
from _flatout_agent.knobs.switchboard import Switchboard
from _flatout_agent.timeline.event_buffer import Tape
from _flatout_agent.wire import GAVE_UP

Write = Callable[..., None]  # a line of the journal
LOADER_KNOBS = ("workers", "persistent_workers", "prefetch_factor", "pin_memory")
OLDEST_FOR_KNOBS = (2, 4)
LITTLE = 20_000  # nanoseconds of ours at a step that are not worth a line of the tape
MOST_OF_A_LINE = 3  # loaders that are known: of training, validation and test


class Course:
    """What is done at the step boundaries once the script's parts are known; returns True while it goes on."""

    def prepare(self, driver: Driver) -> None:
        """As soon as torch is there, before the script's first step."""

    def found_step(self) -> None:
        """One of the steps in which the script's parts are found has ended."""

    def begin(self, driver: Driver) -> None:
        raise NotImplementedError

    def stepped(self, driver: Driver, now: int) -> bool:
        raise NotImplementedError

    def iterator_began(self, iterator: int) -> None:
        """A loader's iterator with this identity is new."""

    def finish(self, driver: Driver) -> None:
        """The script has ended."""

    def gave_up(self) -> None:
        """A fault of ours: from here on the script is alone."""


class Driver:
    """Finds the script's parts in its first steps, then hands each step boundary to its course."""

    def __init__(self, torch: Any, tape: Tape, write: Write, course: Course, early: dict[str, Any]) -> None:
        self.torch = torch
        self.tape = tape
        self.write = write
        self.scene = Scene(torch, UNKNOWN)
        self.board = Switchboard(self.scene, KNOBS)
        self._course = course
        self._finder: RootFinder | None = None
        self._optimizers: list[Any] = []
        # The last loaders of each line that makes some. The very last is held: `for x in DataLoader(…)` keeps none, and makes
        # one per epoch. Those before it only while the script has them: their data may fill a card.
        self._loaders: dict[int, list[tuple[Callable[[], Any], Any, int]]] = {}
        self._loader_is_new = False
        self._ready = False
        self._waited = 0  # for the device: the script's work, not ours
        self.feed: Callable[[Any, Any], Any] | None = None  # a course's own source of batches, before all others
        self.early = self.set(early) if early else {}
        tape.driver = self
        course.prepare(self)
        self.tell_feed()

    # -- what the hooks call ---------------------------------------------------------------------------------------

    def met(self, optimizer: Any) -> None:
        self._optimizers.append(ref(optimizer))

    def iterator_began(self, loader: Any, iterator: int, use: Any, source: int) -> None:
        """`source`: the number of its dataset. One line may make the loaders of training and of validation."""
        self._course.iterator_began(iterator)
        if loader is None or use is None:
            return
        known = self._loaders.setdefault(id(use), [])
        if not any(held() is loader for held, _, _ in known):
            line: list[tuple[Callable[[], Any], Any, int]] = [(lambda: loader, use, source)]
            for held, _, number in reversed(known):
                other = held()
                if other is not None and number != source and len(line) < MOST_OF_A_LINE:
                    line.append((ref(other), use, number))
            self._loaders[id(use)] = line[::-1]
            self._loader_is_new = self._ready and bool(use.batches)

    def stepped(self, now: int) -> None:
        began, self._waited = perf_counter_ns(), 0
        self._stepped(now)
        spent = perf_counter_ns() - began - self._waited
        if spent > LITTLE:
            self.tape.note((self.tape.clock.worked, spent))

    def set(self, wanted: dict[str, Any]) -> dict[str, Outcome]:
        """Put these settings on and take all others off; the time that it takes has its own account."""
        began = perf_counter_ns()
        try:
            return self.board.set(wanted)
        finally:
            self.tape.clock.put_on += perf_counter_ns() - began

    def _stepped(self, now: int) -> None:
        try:
            self.scene.steps_done += 1
            if self._ready:
                if self._loader_is_new:
                    self._take_over()
                if not self._course.stepped(self, now):
                    self._end()
            else:
                self._course.found_step()
                self._look_for_parts()
            self.tell_feed()
        except Exception as error:
            fault("drive", error)
            self.give_up()

    def finish(self) -> None:
        if self._ready:
            self._course.finish(self)

    def tell_feed(self) -> None:
        """The loader's hook asks one attribute a batch: whether anybody stands between the script and its loader."""
        self.tape.feed = self.feed or (self.scene.handover.next_batch if self.scene.handover.busy else None)
        self.tape.epochs = self.scene.handover.start_epoch if self.scene.handover.busy else None

    def give_up(self) -> None:
        """A fault of ours: the script goes on as it is written."""
        if self._finder is not None and not self._finder.done:
            self._finder.end()
        self.board.clear()
        self.feed = None
        self.tape.feed = self.tape.epochs = None
        self.tape.driver = None
        self._course.gave_up()

    # -- the first steps -------------------------------------------------------------------------------------------

    def _look_for_parts(self) -> None:
        if are_walked():
            return  # at the next step, then
        if self._finder is None:
            self._find()
            return
        self._finder.step_ended()
        if self._finder.done:
            self._found()

    def _find(self) -> None:
        self._finder = RootFinder(self.torch)
        self._finder.begin()
        self.scene.handover.watch()

    def _found(self) -> None:
        finder, optimizers = self._finder, alive(self._optimizers)
        assert finder is not None
        self.scene.handover.stop_watching()
        roots = finder.roots(optimizers)
        self.scene.found(roots, optimizers, self.training_loaders())
        self.scene.autocast_seen, self.scene.compiled_seen = finder.autocast_seen, finder.compiled_seen
        self.scene.double_backward_seen = finder.double_backward_seen
        self.scene.graph_kept_seen = finder.graph_kept_seen
        kinds = {parameter.device.type for root in roots for parameter in root.parameters()}
        self.scene.device_type = "cuda" if "cuda" in kinds else "cpu"
        self._ready = True
        self._course.begin(self)

    def training_loaders(self) -> list[Any]:
        self.tape.tell()
        return self.held_to_train_from()

    def held_to_train_from(self) -> list[Any]:
        """As far as the clock was told."""
        held = [(loader(), use, source) for line in self._loaders.values() for loader, use, source in line]
        trained = self.tape.clock.is_trained_on
        return [loader for loader, use, source in held if loader is not None and use.batches and trained(source)]

    def _take_over(self) -> None:
        """Another loader of a line that is trained from: what was put on the last one goes on it, too."""
        self._loader_is_new = False
        before, loaders = self.scene.loaders, self.training_loaders()
        # Training and validation may be made on one line, and take turns there: that is nothing new.
        if len(before) == len(loaders) and all(one is other for one, other in zip(before, loaders)):  # noqa: B905
            return
        self.scene.found(loaders=loaders)
        self.board.put_on_again(LOADER_KNOBS)

    def _end(self) -> None:
        """The course is over: what is on stays on, and nothing is called at steps any more."""
        self._course = _Nothing(self._course)

    def synchronize(self) -> None:
        if self.scene.device_type == "cuda":
            began = perf_counter_ns()
            self.torch.cuda.current_stream().synchronize()
            self._waited += perf_counter_ns() - began


class _Nothing(Course):
    """Nothing at the steps; what was on has its last word at the end."""

    def __init__(self, before: Course) -> None:
        self.finish = before.finish  # type: ignore[method-assign]

    def begin(self, driver: Driver) -> None:
        pass

    def stepped(self, driver: Driver, now: int) -> bool:
        return True


class TrialCourse(Course):
    """In a child of the front's, which trains for nobody: where we cannot go on, it ends, and is not waited for in vain."""

    def gave_up(self) -> None:
        os._exit(GAVE_UP)


def told(outcomes: dict[str, Any]) -> dict[str, Any]:
    return {name: outcome.told() for name, outcome in outcomes.items()}


def all_refused(knobs: dict[str, Any], torch: dict[str, Any]) -> dict[str, Any]:
    return told({name: refused("torch-too-old", version=torch.get("version", "")) for name in knobs})


def none_in_a_fork(knobs: dict[str, Any]) -> dict[str, Any]:
    """What is on belongs to the parent: its models, loaders and optimizers."""
    return told({name: refused("forked-child") for name in knobs})


def early_knobs(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in KNOBS and not KNOBS[name].hot}
