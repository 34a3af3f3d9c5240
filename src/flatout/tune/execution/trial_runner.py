"""Segments carried out in real children: one warm child for many, a new one where it died or a knob wants a fresh start."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from _flatout_agent import wire
from flatout.base.clock import Clock
from flatout.base.errors import FlatoutError
from flatout.base.records import dump, replace
from flatout.knobs import catalogue
from flatout.knobs.model import Switch
from flatout.launch.compiled import caches
from flatout.launch.protection import Kind, Protection
from flatout.launch.reaper_client import Keeper
from flatout.launch.scratch import Scratch, check_room, temporary_inside
from flatout.launch.trial_process import TrialChild, mark_of
from flatout.measure.one_batch import Training
from flatout.measure.time_to_loss import LossCurve, curve_of
from flatout.tune.batch.command_line import BatchLine, Road
from flatout.tune.confirmation.fair_runs import FairRuns
from flatout.tune.confirmation.kept_loss_curves import Curves, training_of
from flatout.tune.confirmation.whole_run_parts import RunMade
from flatout.tune.execution.card_readings import CardMeter
from flatout.tune.execution.child_time_limits import LONGEST_S, Patience, SignsOfLife
from flatout.tune.execution.failed_first_look import NothingToTry, reason
from flatout.tune.execution.longer_script import Lasting
from flatout.tune.search.agent_answers import batch_outcome, result_of
from flatout.tune.search.questions_and_answers import Segment, SegmentResult, Status, Values

POLL_S = 0.01
ROOM_S = 0.25  # between two looks at the room
PATIENCE_S = 60.0  # beyond what its like took
BUILDING = ("compile", "cudnn_benchmark")  # take as long as they like
LEAVING_S = 10.0  # what a child that has told its losses may take to end
MOST_LOGGED = 65536  # characters, of one child
MOST_ENDINGS = 3  # children that come to their end within one segment


class Trials:
    """Gives a result for every segment, whatever becomes of the child."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        protection: Protection,
        clock: Clock,
        log: Path,
        memory_fraction: float | None = None,
    ) -> None:
        self._command = list(command)
        self._protection = protection
        self._clock = clock
        self._log = log
        self._curves = Curves(log.parent, self._command)
        self._memory_fraction = memory_fraction
        self._scratch = Scratch(protection.shared_place)
        self._place = self._scratch.path
        protection.share(self._place)
        temporary = {} if protection.kind == Kind.OVERLAY else temporary_inside(self._place, environ)
        self._environ = {**environ, **temporary, **caches(environ), **protection.environ}
        self._keeper = Keeper(mark_of(self._place), [self._place, *protection.above])
        self._child: TrialChild | None = None
        self._early: Values = {}
        self._children = 0
        self._furthest = 0  # steps that a child came to whose epochs ended as ever …
        self._furthest_endless = 0  # … or did not
        self._answered = 0  # steps of the living child, in what it answered
        self.patience = Patience(clock)
        self.start_s = 0.0  # of the first child, until its parts were known
        self._slowest_s = 0.0
        self._endless = True  # epochs do not end, unless a segment is about that
        self._lasting = Lasting(command)
        self._late = self._hung = False  # the last of the children that tell their losses; one whose losses are compared
        self._unused = False  # a child that was asked for nothing yet is as good as a new one
        self.cards: CardMeter | None = None
        self.batch: BatchLine | None = None  # how the script is started with another batch size, once that is known …
        self.at_size: Callable[[BatchLine, int], list[str]] | None = None  # … where that stands in a file that it reads
        self.plain_per_step: float | None = None  # samples; None until they are known
        self.ready: dict[str, Any] = {}  # what the last child said of the script's parts
        self.limit: tuple[str, dict[str, str | int]] | None = None  # of what holds the trials, which a child that died met
        self._new_files: list[Path] | None = None
        self.fair = FairRuns(protection, self._environ)
        self.said = ""  # the end of what a child printed that died
        self.nothing = NothingToTry("no-steps")  # why, where the first look gave nothing

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self._keeper.close()
            self._scratch.remove()

    def stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            self._keeper.at_work(0)
            steps = self._came_to(child)
            self._furthest_endless = max(self._furthest_endless, steps)
            if not child.went_on():
                self._furthest = max(self._furthest, steps)
            with contextlib.suppress(OSError), self._log.open("ab") as log:
                log.write(child.printed(MOST_LOGGED).encode("utf-8", "replace"))
            changed = self._protection.changed()
            if changed:
                raise FlatoutError("tune-watched.changed", path=", ".join(map(str, changed)))

    def new_files(self) -> list[Path]:
        """What was made past the protection, as it was when this was first asked for: after that we write files, too."""
        self.stop()
        if self._new_files is None:
            self._new_files = self._protection.made()
        return self._new_files

    def begin_with(self, command: Sequence[str]) -> None:
        """Another command than the user's from now on: the script with a batch that fits."""
        self._command = list(command)
        self._lasting = Lasting(command)

    def look(self) -> dict[str, Any] | None:
        """A first child until its parts are known; None where it never comes to a step."""
        began = self._clock.monotonic()
        self._start({})
        child = self._child
        assert child is not None
        ended = self._wait(child, child.ready, self.patience.look_s, self.patience.still_s)
        self.ready = child.ready() or {}
        if not self.ready or "refused" in self.ready:
            self.nothing = reason(child, ended, self.ready, self._protection)
            self._died(child)
            self.ready = {}
        self.start_s = self._clock.monotonic() - began
        if self.ready:
            self.fair.looked(child.process.pid)
        return self.ready or None

    def carry_out(self, segment: Segment) -> SegmentResult:
        began = self._clock.monotonic()
        if segment.curve:
            return self._learn(segment, began)
        early = {name: value for name, value in segment.knobs.items() if _is_early(name)}
        if early != self._early or (segment.restart and not self._unused):
            self.stop()
        status, suspected = Status.ENDED, False
        for _ in range(MOST_ENDINGS):
            if self._child is None:
                self._start(early)
            child, ended, answer = self._asked(segment, began)
            # At its end the agent tells what was timed until then, whatever the end was: a crash is no answer.
            if answer is not None and not (answer["status"] == Status.ENDED and child.died(LEAVING_S)):
                if ended != "":
                    self.stop()
                    self._lasting.came_to_its_end()
                return self._result(segment, child, answer, self._clock.monotonic() - began)
            status = self._fault_of(segment, child, ended, began)
            longer, began_at_all = child.went_on(), child.ready() is not None
            self._died(child)
            if self._length_is_to_blame(status, began_at_all):
                continue
            if status in (Status.CRASH, Status.EXIT) and longer:
                self._endless = False  # it may count on the length of its epochs: once more, and they are as it knows them
                suspected = True
            elif status is not Status.ENDED:
                self._endless = self._endless or suspected  # it was not that
                break
        return SegmentResult(id=segment.id, status=status, took_s=self._clock.monotonic() - began)

    def _asked(self, segment: Segment, began: float) -> tuple[TrialChild, str, dict[str, Any] | None]:
        """The living child, how it left, and what it answered."""
        child = self._child
        assert child is not None
        self._unused = False
        child.ask(dump(segment))
        left = self._patience_s(segment) - (self._clock.monotonic() - began if segment.give_up_s else 0.0)
        ended = self._wait(child, lambda: child.answer(segment.id), left)
        return child, ended, child.answer(segment.id)

    def _fault_of(self, segment: Segment, child: TrialChild, ended: str, began: float) -> Status:
        late = ended == "hang" and (self._given_up(segment, began) or self.patience.overdue())
        status = Status.LATE if late else fault_of(child, ended)
        return Status.EXIT if status is Status.ENDED and self._too_soon(child, segment) else status

    def _learn(self, segment: Segment, began: float) -> SegmentResult:
        longest_s = segment.give_up_s or LONGEST_S
        curve = self.timed_curve(segment.knobs, segment.timed_steps, segment.seed, segment.timed_s, longest_s)
        status = Status.OK if curve is not None else Status.EXIT
        return SegmentResult(id=segment.id, status=status, took_s=self._clock.monotonic() - began, curve=curve)

    def _length_is_to_blame(self, status: Status, began_at_all: bool) -> bool:
        """A script that ended is made to last; one that does not even start so is left as it is."""
        if status is Status.ENDED:
            self._lasting.came_to_its_end()
        if status is Status.ENDED or not self._lasting.is_longer or began_at_all:
            return False
        self._lasting.give_up()
        self._furthest = self._furthest_endless = 0
        return True

    def _result(self, segment: Segment, child: TrialChild, answer: dict[str, Any], took_s: float) -> SegmentResult:
        if not is_building(segment):
            self._slowest_s = max(self._slowest_s, took_s)
        result = self._with_batch(segment, result_of(answer, took_s), child)
        self._answered += segment.warm_steps + result.steps
        if self.cards is None:
            return result
        return replace(result, power_w=self.cards.power_w(), working=self.cards.working())

    def _died(self, child: TrialChild) -> None:
        self.said = child.said()
        self.stop()
        self.limit = self._protection.limit_met(self.said) or self.limit
        for path in (self._place, *self._protection.above):
            check_room(path)

    def _check_room(self) -> None:
        """Copies of what is opened for writing must not fill the disk; and on a full one no child can answer."""
        check_room(self._place)
        path = self._protection.overfull()
        if path is not None:
            self.stop()
            raise FlatoutError("tune-held.overfull", path=path)

    def _too_soon(self, child: TrialChild, segment: Segment) -> bool:
        """Other children got much further than to where this one says that the training is over: it left in the middle."""
        if "batch_size" in segment.knobs or segment.epochs:
            return False  # another batch, or epochs that do end: another length
        return 2 * self._came_to(child) < (self._furthest_endless if self._endless else self._furthest)

    def _came_to(self, child: TrialChild) -> int:
        """Steps. One that left without a word has not told of its last ones."""
        return max(child.steps() or 0, self._answered)

    def _patience_s(self, segment: Segment) -> float:
        """Busy is not the same as getting on: what never answers must not eat all the time that the user gave."""
        longest = segment.give_up_s or LONGEST_S
        if is_building(segment):
            return longest
        return min(longest, PATIENCE_S + 10 * self.start_s + 20 * self._slowest_s)

    def _given_up(self, segment: Segment, began: float) -> bool:
        return segment.give_up_s is not None and self._clock.monotonic() - began >= segment.give_up_s

    def curve(self, knobs: Values, steps: int, seed: int, draws: int = 0, build_s: float = 0.0) -> Training | None:
        """So many steps in a fresh child; None where it does not come to its end. `draws`: others on the device; `build_s`: of
        what is compiled. After one that hung no other is begun: it would hang as long."""
        kept = self._curves.find(knobs, steps, seed, draws)
        if kept is not None or self._hung:
            return kept
        longest_s = self.patience.training_s(self.start_s + steps * self._step_s(knobs) + build_s)
        told = self._losses(knobs, {"steps": steps, "seed": seed, "draws": draws}, longest_s)
        self._hung = self._late
        if not told or not told["losses"]:
            return None
        training = training_of(told)
        self._curves.keep(knobs, steps, seed, training, draws)
        return training

    def timed_curve(
        self, knobs: Values, steps: int, seed: int, seconds: float, longest_s: float = LONGEST_S
    ) -> LossCurve | None:
        """The same over the seconds of the loop, from the first step under the knobs on, which pays for what happens once. The
        steps before it are the plain script's: they would cost a larger batch more."""
        told = self._losses(knobs, {"steps": steps, "seed": seed, "seconds": seconds}, longest_s)
        if told is None or len(told["times"]) != len(told["losses"]):
            return None
        zero = told["begun"] + 1
        times, losses = told["times"][zero:], told["losses"][zero:]
        return curve_of([second - times[0] for second in times[1:]], losses[1:]) if len(times) > 1 else None

    def _losses(self, knobs: Values, wanted: dict[str, Any], longest_s: float = LONGEST_S) -> dict[str, Any] | None:
        self.stop()
        child = self._begin(self._command_for(knobs), parity={"knobs": without_batch(knobs), **wanted})
        self._late = self._wait(child, child.losses, longest_s) == "hang"
        told = None if self._late or child.died(LEAVING_S) else child.losses()
        self.said = child.said()
        self.stop()
        return told

    def run_whole(self, knobs: Values, plain: dict[str, float], until: dict[str, float], longest_s: float) -> RunMade:
        """The script in a fresh child as `flatout run` starts it, with these knobs; to its end, or to `until`."""
        self.stop()
        self.fair.begin()
        began = self._clock.monotonic()
        child = self._begin(self._command_for(knobs), knobs=without_batch(knobs), plain=plain, until=until)
        late = self._wait(child, lambda: None, longest_s) == "hang"
        wall_s = self._clock.monotonic() - began
        code = None if late else child.process.returncode
        lines = child.journals()
        self.said = child.said()
        self.stop()
        return RunMade(wall_s=wall_s, code=code, journals=lines, **self.fair.ended(lines))

    def _step_s(self, knobs: Values) -> float:
        """Of the plain script; with a larger batch as much longer, at most."""
        size, own = knobs.get("batch_size"), self.batch.own if self.batch is not None else 0
        return float(self.ready.get("step_s") or 0.0) * (max(1.0, int(size) / own) if size and own else 1.0)

    def _command_for(self, values: Values) -> list[str]:
        """The batch belongs to the script: it is asked for by the script's own argument, or by its configuration."""
        size = values.get("batch_size")
        if size is None or self.batch is None:
            return self._command
        if self.batch.road is Road.CONFIGURATION and self.at_size is not None:
            return self.at_size(self.batch, int(size))
        return self.batch.command(self._command, int(size))

    def _with_batch(self, segment: Segment, result: SegmentResult, child: TrialChild) -> SegmentResult:
        """With what became of the batch size: seen in the loader, or in the samples of a step."""
        per_step = result.samples / result.steps if result.steps and result.samples > result.steps else None
        size = segment.knobs.get("batch_size")
        if size is None or self.batch is None:
            if segment.batch is None:
                self.plain_per_step = per_step
            return result
        seen = ((child.ready() or {}).get("batch_size"), self.ready.get("batch_size"))
        outcome = batch_outcome(int(size) / self.batch.own, seen, (per_step, self.plain_per_step))
        return replace(result, outcomes={**result.outcomes, "batch_size": outcome})

    def _start(self, early: Values) -> None:
        self._unused = True
        self._early = dict(early)
        line = self._lasting.command(self._command_for(early))
        self._begin(line, segments=True, endless=self._endless, knobs=without_batch(early))

    def _begin(self, line: Sequence[str], **job: Any) -> TrialChild:
        self._children += 1
        self._answered = 0
        self._child = TrialChild(
            self._protection.wrap(line),
            self._environ,
            self._place / str(self._children),
            memory_fraction=self._memory_fraction,
            **self._protection.job,
            **job,
        )
        self._keeper.at_work(self._child.process.pid)
        return self._child

    def _wait(self, child: TrialChild, done: Any, longest_s: float = LONGEST_S, still_s: float | None = None) -> str:
        """Until it is done: "" ; "exit" where the child is gone, "hang" where it does nothing any more, or too long."""
        began = looked = self._clock.monotonic()
        life = SignsOfLife(child, self.patience.idle_s, still_s, began)
        if self.cards is not None:
            self.cards.begin(began)
        while done() is None:
            if child.process.poll() is not None:
                return "exit" if done() is None else ""
            now = self._clock.monotonic()
            if self.cards is not None:
                self.cards.sample(now)
            if now - looked > ROOM_S:
                looked = now
                self._check_room()
            if life.have_ended(now) or now - began > longest_s or self.patience.overdue():
                return "hang"
            self._clock.sleep(POLL_S)
        return ""


def fault_of(child: TrialChild, ended: str) -> Status:
    if ended == "hang":
        return Status.HANG
    code = child.process.returncode
    if code == -signal.SIGKILL:
        return Status.KILLED
    if code != 0 and child.ran_out_of_memory():
        return Status.OOM
    if code == 0:
        return Status.ENDED
    if code in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS):
        return Status.SEGFAULT
    return Status.CRASH if code == wire.GAVE_UP or "Traceback" in child.said() else Status.EXIT


def is_building(segment: Segment) -> bool:
    return any(name in segment.knobs for name in BUILDING)


def without_batch(values: Values) -> Values:
    """What the agent is asked for: the batch is the script's own."""
    return {name: value for name, value in values.items() if name != "batch_size"}


def _is_early(name: str) -> bool:
    knob = catalogue.find(name)
    return knob is not None and knob.switch is Switch.RESTART
