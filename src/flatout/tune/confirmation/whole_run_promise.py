"""What plain and tuned runs say together: the promise of the planned run, and what the record holds of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flatout.base.records import Missing, Struct, field, replace
from flatout.measure import promise
from flatout.measure.promise import Building, Measured, Ratio, RunModel, Seconds, WholeRunPromise
from flatout.tune.search import run_length
from flatout.tune.search.questions_and_answers import Values
from flatout.tune.search.run_length import RunLength

COLD_BYTES, COLD_TIMES = 64 << 20, 4  # so much read from the disk, and so many times what the next run read …
COLD_SHARE, READ_BYTES_S = 0.02, 150e6  # … and so much of the run's time from a disk of this speed, a slow one
COLD_S = 1.0  # so much longer a build with an empty cache must be to be told of


class Arms(Struct, kw_only=True):
    """Runs so far."""

    kept: bool = False  # something is compiled in the tuned ones: from the second on, the compiler's cache is filled
    plain: list[Measured] = field(default_factory=list)
    tuned: list[Measured] = field(default_factory=list)
    cold_bytes: int = 0  # read by a plain run that is left out for it

    def leave_out_cold(self) -> None:
        """Whoever is first reads from the disk what all later ones find in memory: that is no gain of the settings'."""
        if len(self.plain) != 1 or len(self.tuned) != 1 or self.cold_bytes:
            return
        first, then = self.plain[0].read_bytes, self.tuned[0].read_bytes
        least = max(COLD_BYTES, COLD_SHARE * self.plain[0].total * READ_BYTES_S)
        if first > least and first > COLD_TIMES * then:
            self.cold_bytes = self.plain.pop().read_bytes

    @property
    def only_tuned_ended(self) -> bool:
        """A tuned run came to its end, and no plain one did."""
        return any(run.whole for run in self.tuned) and not any(run.whole for run in self.plain)

    @property
    def pairs(self) -> int:
        return min(len(self.plain), len(self.tuned))

    @property
    def building_s(self) -> list[float]:
        """Of the tuned runs, as later ones will have it: `run` finds in the same cache what these built."""
        later = self.tuned[1:] if self.kept and len(self.tuned) > 1 else self.tuned
        return [run.parts.get("building", 0.0) for run in later]

    @property
    def first_building_s(self) -> float | None:
        return self.tuned[0].parts.get("building", 0.0) if self.kept and self.tuned else None


class Confirmed(Struct, frozen=True, kw_only=True):
    """`code`: confirmed; not-faster, unclear, tuned-fails (no profile is written); no-time, plain-fails (nothing is known)."""

    code: str
    knobs: Values
    left_out: Values = field(default_factory=dict)  # what would not have been repaid
    unconfirmed: Values = field(default_factory=dict)  # what whole runs were to decide, and these told nothing
    not_on: dict[str, str] = field(default_factory=dict)  # what did not come on, or was taken back
    plain: RunModel | None = None
    tuned: RunModel | None = None
    epochs: float | None = None  # that the promise is for; None: unknown, the promise is that of each epoch
    length: RunLength | None = None
    ratio: Ratio | Missing = Missing("not-measured")
    pairs: int = 0
    whole: bool = True  # plain and tuned ran to their end
    turns: int = 0  # from epoch to epoch, in the arm that saw fewer
    ending: bool = True  # what comes after the last epoch was seen
    put_on_step: int | None = None
    plain_step_s: float | Missing = Missing("not-measured")
    workers: dict[str, Any] = field(default_factory=dict)  # at the ends of epochs, in the last tuned run
    building: Building | None = None  # None where nothing is compiled
    cold_bytes: int = 0  # read by the first plain run, which is left out for it
    why: str = ""
    detail: str = ""


def building_of(arms: Arms, searched_s: float) -> Building | None:
    """What was counted, and what a run takes that finds nothing kept; `searched_s`: as the search saw it."""
    first_s = arms.first_building_s
    if first_s is None:
        return None
    counted = sum(arms.building_s) / len(arms.building_s)
    cold = max(first_s, searched_s)
    known = cold > counted + COLD_S
    return Building(seconds=counted, warm=len(arms.tuned) > 1, cold_s=cold if known else Missing("not-measured"))


def epochs_of(arms: Arms, length: RunLength | None) -> float | None:
    """That the promise is for: as planned, else as the runs had that came to their end."""
    planned, whole = run_length.units_of(length), _whole(arms)
    return whole[0] if whole and (planned is None or refuted(arms, length)) else planned


def refuted(arms: Arms, length: RunLength | None) -> bool:
    return any(run_length.refuted_by(length, epochs) for epochs in _whole(arms)[:1])


def _whole(arms: Arms) -> list[float]:
    """Epochs of the runs that came to their end, plain ones first."""
    return [run.epochs for run in (*arms.plain, *arms.tuned) if run.whole]


def judged(
    arms: Arms, knobs: Values, length: RunLength | None, loop: Ratio | None, left_out: Mapping[str, str] | None = None
) -> Confirmed:
    """What the runs say of the planned one. Of an unknown length: of each epoch."""
    ends = [run.whole for run in (*arms.plain, *arms.tuned)]
    arms, tail = alike(arms)
    arms = with_recurring(arms)
    plain, tuned = (replace(one, tail=tail) for one in _models(arms))
    epochs = epochs_of(arms, length)
    seen = epochs is not None and (length is None or refuted(arms, length))
    gone = not_on(arms)
    ratio = _ratio_of_runs(arms, plain, tuned, epochs)
    if loop is not None and isinstance(ratio, Ratio):
        other = ratio_for(plain, _with_loop(plain, tuned, loop), epochs)
        ratio = promise.lower_of(ratio, other) if isinstance(other, Ratio) else ratio
    return Confirmed(
        code=code_of(ratio) if knobs.keys() - gone.keys() or not knobs else "unclear",
        knobs={name: value for name, value in knobs.items() if name not in gone},
        not_on=gone,
        left_out=dict(left_out or {}),
        plain=plain,
        tuned=tuned,
        epochs=epochs,
        length=RunLength(epochs=epochs, source="seen") if seen else length,
        ratio=ratio,
        pairs=arms.pairs,
        whole=all(ends),
        ending=any(ends),
        turns=min((run.turns for run in (*arms.plain, *arms.tuned)), default=0),
        put_on_step=next((run.put_on_step for run in arms.tuned if run.put_on_step is not None), None),
        plain_step_s=_least([run.step_s for run in arms.plain]),
        workers=next((run.workers for run in reversed(arms.tuned)), {}),
        cold_bytes=arms.cold_bytes,
    )


def not_on(arms: Arms) -> dict[str, str]:
    """What no tuned run had on to its end. What was taken back and counts all the same was so twice."""
    gone = {name: "taken-back" for run in arms.tuned for name in run.taken_back}
    first = arms.tuned[0].refused if arms.tuned else {}
    return {**{name: code for name, code in first.items() if all(name in run.refused for run in arms.tuned)}, **gone}


def code_of(ratio: Ratio | Missing) -> str:
    """What is not shown to be faster is not shown to be no faster."""
    if isinstance(ratio, Missing) or ratio.low <= 1 <= ratio.high:
        return "unclear"
    return "confirmed" if ratio.low > 1 else "not-faster"


def _models(arms: Arms) -> tuple[RunModel, RunModel]:
    """No setting is on before the first batch: the start is the same in both, and all runs tell of it."""
    start = promise.bounded([run.parts["start"] for run in (*arms.plain, *arms.tuned)])
    models = [promise.model_of(side) for side in (arms.plain, arms.tuned)]
    plain, tuned = [RunModel(once={**one.once, "start": start}, each=one.each) for one in models]
    return plain, RunModel(once={**tuned.once, "building": promise.bounded(arms.building_s)}, each=tuned.each)


def alike(arms: Arms) -> tuple[Arms, dict[str, Seconds]]:
    """Where some runs came to their end and others were ended before: all without what comes after the last epoch, and that by
    itself. It would burden one side alone, and be counted for each epoch."""
    runs = [*arms.plain, *arms.tuned]
    whole = [run for run in runs if run.whole]
    if not whole or len(whole) == len(runs):
        return arms, {}
    names = sorted({name for run in whole for name in run.tail})
    tail = {name: promise.bounded([run.tail.get(name, 0.0) for run in whole]) for name in names}
    plain, tuned = ([_without_tail(run) for run in side] for side in (arms.plain, arms.tuned))
    return replace(arms, plain=plain, tuned=tuned), tail


def with_recurring(arms: Arms) -> Arms:
    """Runs that were ended early with what comes within an epoch, as often as it comes there."""
    plain, tuned = (promise.with_recurring(*sides) for sides in ((arms.plain, arms.tuned), (arms.tuned, arms.plain)))
    return replace(arms, plain=plain, tuned=tuned)


def _without_tail(run: Measured) -> Measured:
    return replace(run, parts={name: spent - run.tail.get(name, 0.0) for name, spent in run.parts.items()}, tail={})


def _ratio_of_runs(arms: Arms, plain: RunModel, tuned: RunModel, epochs: float | None) -> Ratio | Missing:
    """By the models, and as far as the runs agree among themselves. Each has the start of all, and each tuned one the building
    of those that tell of it."""
    start = plain.once["start"].value
    of_all = {"start": start, "building": tuned.once["building"].value}
    runs = [
        [_seconds({**run.parts, "start": start}, run.epochs, epochs) for run in arms.plain],
        [_seconds({**run.parts, **of_all}, run.epochs, epochs) for run in arms.tuned],
    ]
    plain_s, tuned_s = ((_each(one) if epochs is None else promise.total(one, epochs)).value for one in (plain, tuned))
    return promise.speedup_of(plain_s, tuned_s, runs)


def _seconds(parts: Mapping[str, float], measured: float, epochs: float | None) -> float:
    """Of a run over so many epochs, or of one without what is paid once, by one over `measured`."""
    each = sum(parts.get(name, 0.0) for name in promise.EACH) / measured
    return each if epochs is None else epochs * each + sum(parts.get(name, 0.0) for name in promise.ONCE)


def ratio_for(plain: RunModel, tuned: RunModel, epochs: float | None) -> Ratio | Missing:
    if epochs is None:
        return promise.ratio_of(*(_each(one) for one in (plain, tuned)))
    return promise.speedup(plain, tuned, epochs)


def plain_pace(runs: Sequence[Measured]) -> dict[str, float]:
    """By which a run under the profile judges its settings."""
    step_s = _least([run.step_s for run in runs])
    turns = [run.parts.get("turns", 0.0) / run.epochs for run in runs if run.epochs > 0]
    return {"step_s": step_s, **({"turn_s": min(turns)} if turns else {})} if isinstance(step_s, float) else {}


def _least(values: list[float | Missing]) -> float | Missing:
    known = [value for value in values if isinstance(value, float)]
    return min(known) if known else Missing("not-measured")


def told(found: Confirmed, by_epoch: bool) -> WholeRunPromise:
    """For the record. `by_epoch`: the unit of the model is an epoch, not a stretch of steps."""
    plain, tuned, epochs = found.plain, found.tuned, found.epochs
    if plain is None or tuned is None:
        return WholeRunPromise(code=found.code, why=found.why, detail=found.detail, left_out=dict(found.left_out),
                               unconfirmed=dict(found.unconfirmed))  # fmt: skip
    over = epochs if epochs is not None else 1.0
    length = found.length
    ratio = found.ratio
    planned = {"epochs": length.epochs, "steps": length.steps, "source": length.source} if length is not None else None
    none = Missing("unknown-length")
    walls = [round(promise.total(one, over).value, 3) if epochs is not None else none for one in (plain, tuned)]
    return WholeRunPromise(
        code=found.code,
        plain_s=walls[0],
        tuned_s=walls[1],
        speedup=round(ratio.value, 4) if isinstance(ratio, Ratio) else ratio,
        interval=[round(ratio.low, 4), round(ratio.high, 4)] if isinstance(ratio, Ratio) else [],
        loop=promise.loop_speedup(plain, tuned),
        planned=planned,
        unit="epoch" if by_epoch else "steps",
        once={name: promise.total(one, 0.0).value for name, one in (("plain", plain), ("tuned", tuned))},
        each={name: _each(one).value for name, one in (("plain", plain), ("tuned", tuned))},
        parts={name: promise.parts_of(one, over) for name, one in (("plain", plain), ("tuned", tuned))},
        repaid_after=promise.repaid_after(plain, tuned),
        pairs=found.pairs,
        whole=found.whole,
        turns=found.turns,
        ending=found.ending,
        left_out=dict(found.left_out),
        unconfirmed=dict(found.unconfirmed),
        not_on=dict(found.not_on),
        put_on_step=found.put_on_step,
        plain_step_s=found.plain_step_s,
        workers=dict(found.workers),
        building=found.building,
        cold_bytes=found.cold_bytes,
    )


def _each(model: RunModel) -> Seconds:
    return promise.total(RunModel(each=model.each), 1.0)


def _with_loop(plain: RunModel, tuned: RunModel, loop: Ratio) -> RunModel:
    """The tuned run with steps as much faster as the search found them."""
    steps = plain.each["steps"]
    found = Seconds(value=steps.value / loop.value, low=steps.low / loop.high, high=steps.high / loop.low)
    return replace(tuned, each={**tuned.each, "steps": found})
