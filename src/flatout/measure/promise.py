"""How long a whole run takes, plain and tuned, from the parts of measured runs: start, building, epochs, exit. Pure.

A run of E epochs takes `once + E * each`: what it pays once (start, building, exit) and what every epoch pays (its steps, the
turn to the next epoch, validation, checkpoint, the script's own code). A run without epochs is counted in stretches of
`UNIT_STEPS` steps instead.

Every part has bounds. Within a run they are added up, not combined by squares: what slows a machine down slows all of its
parts. Plain and tuned runs vary independently, so the bounds of their ratio are combined by squares. Where runs are compared
with runs, their own scatter says how far their ratio can be trusted (`speedup_of`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from flatout.base.records import Missing, Struct, field, replace
from flatout.measure.intervals import student
from flatout.measure.parts import PARTS
from flatout.measure.recurring import Recurring, often, price

ONCE = ("start", "building", "exit")
EACH = ("steps", "turns", "validation", "checkpoint", "script", "unexplained")
NOT_MEASURED = Missing("not-measured")
FEWEST_KEPT = 3  # runs under profiles: fewer tell no scatter
UNIT_STEPS = 100  # of a script without epochs

LEVEL = 0.9  # of the interval, two-sided
USUAL_SPREAD = 0.04  # of one run's time to the next on a quiet machine: two or three runs tell too little of their own spread …
USUAL_WEIGHT = 4  # … so this counts as much as this many runs more, …
SEEN_WEIGHT = 1  # … and as one where two of each side, at least, showed how they scatter
SEEN = 2  # so many values beyond the two means


class Seconds(Struct, frozen=True, kw_only=True):
    """A time and its bounds."""

    value: float
    low: float
    high: float


class RunModel(Struct, frozen=True, kw_only=True):
    """One arm, plain or tuned: seconds that are paid once, and seconds that each epoch pays, by part."""

    once: dict[str, Seconds] = field(default_factory=dict)
    each: dict[str, Seconds] = field(default_factory=dict)
    tail: dict[str, Seconds] = field(default_factory=dict)  # of the parts in `each`, what comes once, after the last epoch


class Ratio(Struct, frozen=True, kw_only=True):
    """Seconds of the plain run for each second of the tuned one."""

    value: float
    low: float
    high: float


class Measured(Struct, frozen=True, kw_only=True):
    """One measured run: its seconds by part, and how many epochs they hold."""

    parts: dict[str, float]
    epochs: float
    step_s: float | Missing = NOT_MEASURED  # of the steady loop
    whole: bool = True  # it ran to the script's end; else one epoch was put together …
    turns: int = 1  # … from a part of it with so many turns
    put_on_step: int | None = None  # after which its settings came on
    workers: dict[str, Any] = field(default_factory=dict)  # what became of them at the ends of epochs, as the agent told it
    refused: dict[str, str] = field(default_factory=dict)  # settings that did not come on, by the code that says why
    taken_back: list[str] = field(default_factory=list)  # settings that this run itself found slower
    tail: dict[str, float] = field(default_factory=dict)  # of a whole run's parts, what came after the last epoch was over
    # By part: what came within epochs every so many steps. In `parts` of a whole run, apart from those of one that was ended.
    recurring: dict[str, Recurring] = field(default_factory=dict)
    unit_steps: float = 0.0  # of an epoch
    read_bytes: int = 0  # from the disk

    @property
    def total(self) -> float:
        return math.fsum(self.parts.values())


class Building(Struct, frozen=True, kw_only=True):
    """Of a tuned run in which something is compiled."""

    seconds: float  # as counted
    warm: bool  # of runs that found what an earlier one had built, as every later run will; else of the only one
    cold_s: float | Missing = NOT_MEASURED  # of a run that finds nothing kept, where it was seen to take longer


class PutOff(Struct, frozen=True, kw_only=True):
    """A setting that costs time once, in a run of unknown length."""

    step: int  # after which it comes on
    costs_s: float
    saves_s: float  # in each step from then on


class WholeRunPromise(Struct, frozen=True, kw_only=True):
    """What the user's whole run takes, plain and tuned, as confirmed before a profile is written.

    `code`: confirmed; not-faster, unclear (neither is shown), tuned-fails (no profile is written); no-time, plain-fails (of
    whole runs nothing is known).
    """

    code: str
    plain_s: float | Missing = NOT_MEASURED  # of the planned run; missing where its length is not known
    tuned_s: float | Missing = NOT_MEASURED
    speedup: float | Missing = NOT_MEASURED  # of the planned run, else of each epoch
    interval: list[float] = field(default_factory=list)
    loop: float | Missing = NOT_MEASURED  # of the steps alone
    planned: dict[str, float | str | None] | None = None  # epochs, steps, source
    unit: str = "epoch"  # of `each`; steps: so many of them, where there is no loader
    once: dict[str, float] = field(default_factory=dict)  # plain, tuned: seconds that every run pays
    each: dict[str, float] = field(default_factory=dict)  # plain, tuned: seconds of each epoch
    parts: dict[str, dict[str, float]] = field(default_factory=dict)  # plain, tuned: of the planned run, else of one epoch
    repaid_after: float | None = None  # epochs from which on the tuned run is ahead
    pairs: int = 0
    whole: bool = True  # the runs came to their end; else put together from parts
    turns: int = 0  # of the epoch that the runs put together met, at least
    ending: bool = True  # what comes after the last epoch, a final test for example, is in it: a run came to its end
    left_out: dict[str, str] = field(default_factory=dict)  # settings that this run would not have repaid
    unconfirmed: dict[str, str] = field(default_factory=dict)  # settings that whole runs were to decide, and these told nothing
    not_on: dict[str, str] = field(default_factory=dict)  # settings that did not come on in these runs, or were taken back: why
    put_on_step: int | None = None
    plain_step_s: float | Missing = NOT_MEASURED  # of the steady loop
    workers: dict[str, Any] = field(default_factory=dict)  # at the ends of epochs, in the last tuned run
    building: Building | None = None  # None where nothing is compiled
    cold_bytes: int = 0  # that the first plain run read from the disk, and the others found in memory: it is left out
    data_bytes: int = 0  # of large files, where they are more than the memory: none was in memory when a run began
    put_off: dict[str, PutOff] = field(default_factory=dict)  # by knob; only where the length is not known
    budget: str = ""  # no-time: the --budget that would confirm it; unclear: that has time for more runs, where they are few
    why: str = ""  # a run failed: failed (`detail`: its exit status), did-not-end, no-steps
    detail: str = ""


def model_of(runs: Sequence[Measured]) -> RunModel:
    """From at least one run. All parts of a run are there, those that took no time as 0."""
    once = {name: bounded([run.parts.get(name, 0.0) for run in runs]) for name in ONCE}
    each = {name: bounded([run.parts.get(name, 0.0) / run.epochs for run in runs]) for name in EACH}
    return RunModel(once=once, each=each)


def with_recurring(runs: Sequence[Measured], others: Sequence[Measured]) -> list[Measured]:
    """One arm's runs, those put together with what comes within an epoch every so many steps; `others`: of the other arm."""
    for name in {name for run in (*runs, *others) for name in run.recurring}:
        own, theirs = ([run.recurring[name] for run in side if name in run.recurring] for side in (runs, others))
        one_s, rate = price(own, theirs), often([*own, *theirs])
        runs = [run if run.whole else _with_more(run, name, one_s * rate * run.unit_steps) for run in runs]
    return list(runs)


def _with_more(run: Measured, part: str, seconds: float) -> Measured:
    return replace(run, parts={**run.parts, part: run.parts.get(part, 0.0) + seconds * run.epochs})


def bounded(values: Sequence[float]) -> Seconds:
    """The mean, with bounds that hold for the mean of further runs: by the values' own spread and what is usual."""
    count = len(values)
    mean = math.fsum(values) / count
    squares = math.fsum((value - mean) ** 2 for value in values)
    freedom = USUAL_WEIGHT + count - 1
    spread = math.sqrt((USUAL_WEIGHT * (USUAL_SPREAD * mean) ** 2 + squares) / freedom)
    half = student(1 - (1 - LEVEL) / 2, freedom) * spread / math.sqrt(count)
    return Seconds(value=mean, low=max(0.0, mean - half), high=mean + half)


def total(model: RunModel, epochs: float) -> Seconds:
    """Of a whole run over so many epochs."""
    return _sum([*model.once.values(), *model.tail.values(), *(_times(part, epochs) for part in model.each.values())])


def parts_of(model: RunModel, epochs: float) -> dict[str, float]:
    """Seconds by part; they add up to the total's value."""
    none = Seconds(value=0.0, low=0.0, high=0.0)
    each = {name: epochs * part.value + model.tail.get(name, none).value for name, part in model.each.items()}
    once = {name: part.value for name, part in model.once.items()}
    return {name: {**once, **each}[name] for name in PARTS if name in {**once, **each}}


def speedup(plain: RunModel, tuned: RunModel, epochs: float) -> Ratio | Missing:
    return ratio_of(total(plain, epochs), total(tuned, epochs))


def ratio_of(plain: Seconds, tuned: Seconds) -> Ratio | Missing:
    if plain.value <= 0 or tuned.value <= 0:
        return Missing("nothing-timed")
    value = plain.value / tuned.value
    down = math.hypot(_log(plain.value, plain.low), _log(tuned.high, tuned.value))
    up = math.hypot(_log(plain.high, plain.value), _log(tuned.value, tuned.low))
    return Ratio(value=value, low=value * math.exp(-down), high=value * math.exp(up))


def speedup_of(plain_s: float, tuned_s: float, runs: Sequence[Sequence[float]]) -> Ratio | Missing:
    """`runs`: the seconds of each plain and of each tuned one. What both scatter by about their own mean counts together."""
    if plain_s <= 0 or tuned_s <= 0 or not all(runs):
        return Missing("nothing-timed")
    means = [math.fsum(side) / len(side) for side in runs]
    if min(means) <= 0:
        return Missing("nothing-timed")
    squares = math.fsum((value / mean - 1) ** 2 for side, mean in zip(runs, means, strict=True) for value in side)
    seen = sum(len(side) - 1 for side in runs)
    weight = SEEN_WEIGHT if seen >= SEEN else USUAL_WEIGHT
    spread = math.sqrt((weight * USUAL_SPREAD**2 + squares) / (weight + seen))
    error = spread * math.sqrt(math.fsum(1 / len(side) for side in runs))
    factor = math.exp(student(1 - (1 - LEVEL) / 2, weight + seen) * error)
    value = plain_s / tuned_s
    return Ratio(value=value, low=value / factor, high=value * factor)


def loop_speedup(plain: RunModel, tuned: RunModel) -> float | Missing:
    """Of the steps alone, without turns, validation and what is paid once."""
    before, after = plain.each.get("steps"), tuned.each.get("steps")
    if before is None or after is None or before.value <= 0 or after.value <= 0:
        return Missing("nothing-timed")
    return before.value / after.value


def repaid_after(plain: RunModel, tuned: RunModel) -> float | None:
    """Epochs after which the tuned run is ahead; 0.0 where it is from the start, None where it never will be."""
    dearer = _value(tuned.once) - _value(plain.once)
    saved = _value(plain.each) - _value(tuned.each)
    if dearer <= 0 <= saved:
        return 0.0
    return dearer / saved if saved > 0 and dearer > 0 else None


def lower_of(one: Ratio, other: Ratio) -> Ratio:
    """Two ways of measuring the same: where they disagree by more than their intervals, the lower is promised."""
    agree = one.low <= other.high and other.low <= one.high
    return one if agree or one.value <= other.value else other


def widened(found: Ratio, kept: Sequence[float]) -> Ratio:
    """With what earlier promises were missed by, each side by what fell on it: runs that were faster than promised say nothing
    against the lower bound. `kept`: delivered ÷ promised of runs."""
    count = len(kept)
    if count < FEWEST_KEPT or any(ratio <= 0 for ratio in kept):
        return found
    missed = [math.log(ratio) for ratio in kept]
    mean = math.fsum(missed) / count
    spread = math.sqrt(math.fsum((one - mean) ** 2 for one in missed) / (count - 1))
    half = student(1 - (1 - LEVEL) / 2, count - 1) * spread * math.sqrt(1 + 1 / count)  # of one run more
    return Ratio(
        value=found.value,
        low=min(found.low, found.value * math.exp(mean - half)),
        high=max(found.high, found.value * math.exp(mean + half)),
    )


def without_more(values: Mapping[str, float]) -> dict[str, float]:
    """Every part of a run, those that nobody told of as 0."""
    return {name: float(values.get(name, 0.0)) for name in PARTS}


def _value(parts: Mapping[str, Seconds]) -> float:
    return math.fsum(part.value for part in parts.values())


def _sum(parts: Sequence[Seconds]) -> Seconds:
    return Seconds(
        value=math.fsum(part.value for part in parts),
        low=math.fsum(part.low for part in parts),
        high=math.fsum(part.high for part in parts),
    )


def _times(part: Seconds, factor: float) -> Seconds:
    return Seconds(value=factor * part.value, low=factor * part.low, high=factor * part.high)


def _log(larger: float, smaller: float) -> float:
    return math.log(larger / smaller) if smaller > 0 else math.inf
