"""Confirmation at the end of a search: its time, its messages, and what happens to the profile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flatout.base import records
from flatout.base.clock import SystemClock
from flatout.base.records import Missing
from flatout.cli.parity_gate import Screen

if TYPE_CHECKING:
    from flatout.launch.disk_reads import Data
    from flatout.measure.promise import Ratio
    from flatout.tune.confirmation.compare_whole_runs import Once
    from flatout.tune.confirmation.whole_run_parts import Scale
    from flatout.tune.confirmation.whole_run_promise import Confirmed
    from flatout.tune.execution.trial_runner import Trials
    from flatout.tune.search.questions_and_answers import Finished
    from flatout.tune.search.run_length import RunLength
    from flatout.tune.search.time_budget import Budget, Costs


class Units(NamedTuple):
    """What the promise counts in: epochs, or stretches of steps; and the steps of one."""

    epochs: bool
    steps: float


class Room(NamedTuple):
    """What a confirmation may take."""

    granted: Budget
    costs: Costs
    seconds: float


def confirmed(
    end: Finished, trials: Trials, screen: Screen, room: Room, length: RunLength | None, *, line: list[str], own_starts: bool
) -> Finished:
    """`line` begins with the interpreter; `own_starts`: the script gets through with its own batch, else there is no plain run
    to compare with."""
    from flatout.measure.promise import UNIT_STEPS
    from flatout.tune.confirmation import compare_whole_runs
    from flatout.tune.confirmation.runs_in_time import InTime
    from flatout.tune.confirmation.whole_run_parts import measured
    from flatout.tune.search.run_length import batches_of_an_epoch, kept_promises, plain_wall_s, steps_of_an_epoch

    if not end.profile or not own_starts:
        return end
    batches = batches_of_an_epoch(trials.ready)
    if batches is None and length is not None and length.steps is None:
        length = None  # epochs of a loader without a length: nothing here counts them
    clock = SystemClock()
    grace_s = trials.patience.grace_s
    in_time = InTime(trials.run_whole, clock.monotonic, None if grace_s is None else room.seconds + grace_s)

    def run(knobs: dict[str, str], plain: dict[str, float], until: dict[str, float], longest_s: float) -> Any:
        made = in_time.run(knobs, plain, until, longest_s)
        return made if isinstance(made, Missing) else measured(made, _scale(batches, knobs, end))

    def told(number: int, tuned: bool) -> None:
        screen.hint(screen.words("whole-run.running-tuned" if tuned else "whole-run.running-plain", number=number))

    kept = kept_promises(line, Path.cwd())
    free = room.granted.code != "asked"
    known = compare_whole_runs.Known(
        kept=kept, once=once_of(end), gains=gains_of(end), undecided=end.unpaid, time_may_grow=free
    )
    confirmation = compare_whole_runs.Confirmation(run, clock.monotonic, told, known)
    plain_s = _plain_s(end, trials, length, plain_wall_s(line, Path.cwd()), room.costs.step_s)
    found = confirmation.confirm(end.profile, room.seconds, room.costs, length, _loop(end), plain_s)
    units = Units(batches is not None, steps_of_an_epoch(trials.ready) or float(UNIT_STEPS))
    return _with(end, unconfirmed(end, found), units, trials.fair.data, screen, room)


def confirmed_with_time_left(confirm: Callable[..., Finished], end: Finished, room: Room) -> tuple[Finished, Room]:
    """Confirmed, and the time for doing so once more: of a limit that somebody set, what is left."""
    clock = SystemClock()
    began = clock.monotonic()
    found = confirm(end, room=room)
    asked = room.granted.code == "asked"
    return found, room._replace(seconds=room.seconds - (clock.monotonic() - began)) if asked else room


def once_of(end: Finished) -> dict[str, Once]:
    """What was compiled in the search, and what it gave there by itself."""
    from flatout.tune.confirmation.compare_whole_runs import Once, compiled

    known = gains_of(end)
    names = [name for name in end.build_s if name in end.profile and compiled(end.profile)]
    return {name: Once(build_s=end.build_s[name], gain=known.get(name)) for name in names}


def gains_of(end: Finished) -> dict[str, float]:
    """What each setting that was kept gave in the search by itself, where it was tried by itself."""
    return {
        one.knob: one.ratio
        for one in end.decisions
        if end.profile.get(one.knob) == one.value and one.code != "faster-together" and isinstance(one.ratio, float)
    }


def unconfirmed(end: Finished, found: Confirmed) -> Confirmed:
    """What was kept for whole runs to decide, and these told nothing: it is left out."""
    left = {name: value for name, value in found.knobs.items() if name in end.unpaid}
    if found.code not in ("no-time", "plain-fails") or not left:
        return found
    knobs = {name: value for name, value in found.knobs.items() if name not in left}
    return records.replace(found, knobs=knobs, unconfirmed=left)


def _with(end: Finished, found: Confirmed, units: Units, data: Data, screen: Screen, room: Room) -> Finished:
    from flatout.report import whole_run as report
    from flatout.tune.confirmation.compare_whole_runs import MOST_PAIRS
    from flatout.tune.confirmation.late_settings import put_off
    from flatout.tune.confirmation.whole_run_promise import told

    whole = records.replace(told(found, units.epochs), put_off=put_off(found, once_of(end), units.steps))
    if data.beyond_memory:
        whole = records.replace(whole, data_bytes=sum(data.values()))
    if whole.code == "no-time" or (whole.code == "unclear" and whole.pairs < MOST_PAIRS):
        whole = records.replace(whole, budget=_enough(room))
    for sentence in report.sentences(whole, screen.words):
        screen.say(sentence)
    profile = {} if found.code in ("not-faster", "unclear", "tuned-fails") else dict(found.knobs)
    return records.replace(end, profile=profile, whole_run=whole)


def _enough(room: Room) -> str:
    """The --budget that has time for whole runs: where some was there and did not do, twice as much."""
    from flatout.tune.search.time_budget import as_option, to_ask_for

    granted, costs = room.granted, room.costs
    return as_option(2 * (costs.looked_s + granted.total_s)) if granted.confirm_s else to_ask_for(costs, granted.search_s)


def _scale(batches: int | None, knobs: dict[str, str], end: Finished) -> Scale:
    """Of another batch size an epoch has another number of batches."""
    from flatout.tune.confirmation.whole_run_parts import Scale

    size, own = knobs.get("batch_size"), end.batch.own if end.batch is not None else None
    if batches is None or size is None or not own:
        return Scale(batches=batches)
    return Scale(batches=batches * own / int(size))


def _loop(end: Finished) -> Ratio | None:
    from flatout.measure.promise import Ratio

    if isinstance(end.speedup, Missing) or isinstance(end.lower, Missing) or isinstance(end.upper, Missing):
        return None
    if end.lower <= 1:
        return None  # it could not tell: whole runs were to decide
    return Ratio(value=end.speedup, low=end.lower, high=end.upper)


def _plain_s(end: Finished, trials: Trials, length: RunLength | None, earlier_s: float | None, step_s: float) -> float | None:
    """Of the whole plain run, as foreseen: a run that fits is made whole. `earlier_s`: what one took, validation and all; else
    from the loop, whose `step_s` is that of its first steps."""
    if length is None:
        return None
    if length.source == "earlier-run" and earlier_s is not None:
        return earlier_s
    rate = end.baseline if isinstance(end.baseline, float) else 0.0
    samples, per_step = trials.ready.get("samples"), trials.plain_per_step
    if rate > 0 and samples and length.epochs is not None:
        return trials.start_s + float(length.epochs * samples / rate)
    if length.steps is None:
        return None
    if rate > 0 and per_step is not None:
        return trials.start_s + float(length.steps * per_step / rate)
    return trials.start_s + length.steps * step_s if step_s else None
