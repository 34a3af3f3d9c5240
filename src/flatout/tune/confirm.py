"""Before a profile is written: plain and tuned, each as `flatout run` runs it, in turn, and what the user's whole run gains.

A run that fits its share of the time goes to the script's end. A longer one is ended early in both arms: its epoch after some
seconds, the process after the turn; the whole run is then put together from its parts. Where the tuned runs are not faster
beyond doubt, the settings that cost time once are left out, compiling first, and the rest is confirmed by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flatout.base.records import Missing, Struct, field, replace
from flatout.launch.compiled import NOTHING_BUILT
from flatout.measure import promise
from flatout.measure.promise import Building, Measured, Ratio, RunModel, Seconds, WholeRunPromise
from flatout.tune.budget import LOOP_S, Costs
from flatout.tune.model import Values
from flatout.tune.run_length import RunLength

FITS = 0.55  # of the time that is left: so long may the plain run be, and the pair still fit
CUT = 0.6  # of the time for a run's loop passes before its epoch is cut short
LEAST_STEPS, SLOW_LOOP_S = 10, 9.0  # that time holds so many plain steps, or of slow ones so many seconds
STOP = 2.5  # times that time: a validation may be long
SLOWER = 1.2  # than foreseen: what a loop with slow steps takes
KILL_STARTS, KILL_STOPS, KILL_MORE_S = 4.0, 2.0, 30.0  # what has not ended then is ended
PAIRS, MOST_PAIRS = 2, 4
COSTS_ONCE = ("compile", "cudnn_benchmark")  # left out in this order
AGAIN = 0.5  # of a build, once the compiler has kept what it built
COLD_S = 1.0  # so much longer a build with an empty cache must be to be told of

# Knobs, what a plain step and turn took (for a tuned run, as its profile will say), until, when it is killed.
Run = Callable[[Values, dict[str, float], dict[str, float], float], "Measured | Missing"]
Told = Callable[[int, bool], None]  # the number of the run that begins, and whether it is a tuned one


class Once(Struct, frozen=True, kw_only=True):
    """A setting that is compiled, as the search saw it."""

    build_s: float  # with whatever the compiler had kept then
    gain: float | None  # of the loop, beside what else is kept; None where that is not known


class Arms(Struct, kw_only=True):
    """Runs so far."""

    kept: bool = False  # something is compiled in the tuned ones: from the second on, the compiler's cache is filled
    plain: list[Measured] = field(default_factory=list)
    tuned: list[Measured] = field(default_factory=list)

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
    """`code`: confirmed; not-faster, tuned-fails (then no profile is written); no-time, plain-fails (nothing is known)."""

    code: str
    knobs: Values
    left_out: Values = field(default_factory=dict)  # what would not have been repaid
    plain: RunModel | None = None
    tuned: RunModel | None = None
    epochs: float | None = None  # that the promise is for; None: unknown, the promise is that of each epoch
    length: RunLength | None = None
    ratio: Ratio | Missing = Missing("not-measured")
    pairs: int = 0
    whole: bool = True  # plain and tuned ran to their end
    turns: int = 0  # from epoch to epoch, in the arm that saw fewer
    put_on_step: int | None = None
    plain_step_s: float | Missing = Missing("not-measured")
    workers: dict[str, Any] = field(default_factory=dict)  # at the ends of epochs, in the last tuned run
    building: Building | None = None  # None where nothing is compiled
    why: str = ""
    detail: str = ""


class Confirmation:
    """`now` and `run` are the machine; all decisions follow from what they give."""

    def __init__(
        self,
        run: Run,
        now: Callable[[], float],
        told: Told = lambda number, tuned: None,
        kept: Sequence[float] = (),
        once: Mapping[str, Once] | None = None,
    ) -> None:
        """`kept`: delivered ÷ promised of earlier runs under a profile; `once`: what is compiled."""
        self._once = once or {}
        self._kept = kept
        self._run = run
        self._now = now
        self._told = told
        self._number = 0
        self._longest_s = {False: 0.0, True: 0.0}  # of a plain and of a tuned run
        self._until: dict[str, float] = {}
        self._longest_run_s = 0.0

    def confirm(self, knobs: Values, room_s: float, costs: Costs, length: RunLength | None, loop: Ratio | None,
                plain_s: float | None = None) -> Confirmed:  # fmt: skip
        """`loop`: of the search's last comparison; `plain_s`: of the whole plain run, as foreseen."""
        if room_s < costs.pair_s:
            return Confirmed(code="no-time", knobs=knobs)
        ends = self._now() + room_s
        fits = plain_s is not None and plain_s <= FITS * room_s
        least_s = max(LOOP_S, min(LEAST_STEPS * costs.step_s, SLOW_LOOP_S))
        loop_s = max(least_s, (FITS * room_s if fits else room_s / (2 * PAIRS)) - costs.start_s)
        stop_s = max(STOP * loop_s, SLOWER * costs.loop_s)
        self._until = {"cut_s": loop_s if fits else CUT * loop_s, "stop_s": stop_s}
        self._longest_run_s = KILL_STARTS * costs.start_s + KILL_STOPS * stop_s + KILL_MORE_S
        arms = Arms(kept=compiled(knobs))
        failed = self._pairs(arms, knobs, ends, lambda: _decided(arms, length, loop), lambda: _slower(arms, length, loop))
        if failed is not None:
            return _failed(failed[0], failed[1], knobs)
        told = self._judged(arms, knobs, length, loop)
        if told.code == "not-faster":
            return self._with_less(arms, told, ends, length, COSTS_ONCE)
        dear = self._not_repaid(told)
        return self._with_less(arms, told, ends, length, (dear,)) if dear else told

    def _pairs(
        self, arms: Arms, knobs: Values, ends: float, enough: Callable[[], bool], slower: Callable[[], bool]
    ) -> tuple[Missing, bool] | None:
        """Plain, tuned, tuned, plain … until it is enough, or the time is over; why it failed, if it did."""
        for place in range(2 * MOST_PAIRS):
            tuned = place % 4 in (1, 2)
            if arms.pairs >= 1 and self._now() + self._expected_s(arms, tuned) > ends:
                break
            if place % 2 == 0 and arms.pairs and (slower() or (arms.pairs >= PAIRS and enough())):
                break
            found = self._one(knobs if tuned else {}, tuned, arms)
            if isinstance(found, Missing):
                return None if arms.pairs >= 1 and not tuned else (found, tuned)
            (arms.tuned if tuned else arms.plain).append(found)
        return None

    def _expected_s(self, arms: Arms, tuned: bool) -> float:
        """Of the next such run."""
        built_s = arms.first_building_s if tuned and len(arms.tuned) == 1 else None
        return self._longest_s[tuned] - (1 - AGAIN) * (built_s or 0.0)

    def _one(self, knobs: Values, tuned: bool, arms: Arms) -> Measured | Missing:
        self._number += 1
        self._told(self._number, tuned)
        began = self._now()
        plain = _plain_pace(arms.plain) if tuned and "batch_size" not in knobs else {}
        build_s = sum(seen.build_s for name, seen in self._once.items() if name in knobs)
        until = {**self._until, "stop_s": self._until["stop_s"] + build_s}
        found = self._run(knobs, plain, until, self._longest_run_s + KILL_STOPS * build_s)
        self._longest_s[tuned] = max(self._longest_s[tuned], self._now() - began)
        return found

    def _judged(
        self, arms: Arms, knobs: Values, length: RunLength | None, loop: Ratio | None, left_out: Values | None = None
    ) -> Confirmed:
        told = judged(arms, knobs, length, loop, left_out)
        if isinstance(told.ratio, Missing):
            return told
        ratio = promise.widened(told.ratio, self._kept)
        cold_s = sum(seen.build_s for name, seen in self._once.items() if name in knobs)
        code = "confirmed" if ratio.low > 1 else "not-faster"
        return replace(told, ratio=ratio, code=code, building=building_of(arms, cold_s))

    def _not_repaid(self, told: Confirmed) -> str | None:
        """What is compiled and costs more than this run gains by it, at the price that was seen here last."""
        plain, tuned, epochs = told.plain, told.tuned, told.epochs
        if plain is None or tuned is None or epochs is None:
            return None
        built_s = tuned.once["building"].value - plain.once["building"].value
        steps_s = epochs * tuned.each["steps"].value
        gains = {name: seen.gain for name, seen in self._once.items() if name in told.knobs and seen.gain is not None}
        return next((name for name, gain in gains.items() if built_s > (gain - 1) * steps_s), None)

    def _with_less(
        self, arms: Arms, before: Confirmed, ends: float, length: RunLength | None, names: Sequence[str]
    ) -> Confirmed:
        """Without what costs time once, one after the other, as long as there is time for a run; what was confirmed with
        it stays unless it is faster without."""
        knobs, left_out = dict(before.knobs), dict(before.left_out)
        built = min(run.parts.get("building", 0.0) for run in arms.tuned)
        one_s = max(0.0, self._longest_s[True] - built)
        for name in names:
            if name not in knobs or len(knobs) < 2 or self._now() + one_s > ends:
                continue
            left_out[name] = knobs.pop(name)
            rest = Arms(plain=arms.plain, kept=compiled(knobs))
            for _ in range(PAIRS):
                if rest.tuned and self._now() + one_s > ends:
                    break
                found = self._one(knobs, True, arms)
                if isinstance(found, Missing):
                    return before if before.code == "confirmed" else _failed(found, True, knobs, left_out)
                rest.tuned.append(found)
            told = self._judged(rest, knobs, length, None, left_out)
            if told.code == "confirmed" and (before.code != "confirmed" or _value(told) > _value(before)):
                return told
        return before


def compiled(knobs: Values) -> bool:
    """By a compiler, which keeps what it built; not recorded."""
    return knobs.get("compile") not in NOTHING_BUILT


def _value(told: Confirmed) -> float:
    return told.ratio.value if isinstance(told.ratio, Ratio) else 0.0


def building_of(arms: Arms, searched_s: float) -> Building | None:
    """What was counted, and what a run takes that finds nothing kept; `searched_s`: as the search saw it."""
    first_s = arms.first_building_s
    if first_s is None:
        return None
    counted = sum(arms.building_s) / len(arms.building_s)
    cold = max(first_s, searched_s)
    known = cold > counted + COLD_S
    return Building(seconds=counted, warm=len(arms.tuned) > 1, cold_s=cold if known else Missing("not-measured"))


def _failed(found: Missing, tuned: bool, knobs: Values, left_out: Mapping[str, str] | None = None) -> Confirmed:
    code = "no-time" if found.reason == "too-few-steps" else "tuned-fails" if tuned else "plain-fails"
    return Confirmed(code=code, knobs=dict(knobs), left_out=dict(left_out or {}), why=found.reason, detail=found.detail)


def epochs_of(arms: Arms, length: RunLength | None) -> float | None:
    """That the promise is for: as planned, else as the plain runs had that came to their end."""
    if length is not None and (length.epochs is not None or length.steps is not None):
        return length.epochs if length.epochs is not None else (length.steps or 0) / promise.UNIT_STEPS
    whole = [run.epochs for run in arms.plain if run.whole]
    return whole[0] if whole else None


def _decided(arms: Arms, length: RunLength | None, loop: Ratio | None) -> bool:
    ratio = judged(arms, {}, length, loop).ratio
    return isinstance(ratio, Ratio) and (ratio.low > 1 or ratio.high < 1)


def _slower(arms: Arms, length: RunLength | None, loop: Ratio | None) -> bool:
    """Plainly: the time is for another way. Of what was built once it is not known yet what it costs again."""
    if arms.kept and len(arms.tuned) == 1:
        first = arms.tuned[0]
        parts = {**first.parts, "building": AGAIN * first.parts.get("building", 0.0)}
        arms = replace(arms, tuned=[replace(first, parts=parts)])
    ratio = judged(arms, {}, length, loop).ratio
    return isinstance(ratio, Ratio) and ratio.high < 1


def judged(
    arms: Arms, knobs: Values, length: RunLength | None, loop: Ratio | None, left_out: Mapping[str, str] | None = None
) -> Confirmed:
    """What the runs say of the planned one. Of an unknown length: of each epoch."""
    plain, tuned = _models(arms)
    whole = all(run.whole for run in (*arms.plain, *arms.tuned))
    epochs = epochs_of(arms, length)
    seen = length is None and epochs is not None
    ratio = ratio_for(plain, tuned, epochs)
    if loop is not None and isinstance(ratio, Ratio):
        other = ratio_for(plain, _with_loop(plain, tuned, loop), epochs)
        ratio = promise.lower_of(ratio, other) if isinstance(other, Ratio) else ratio
    return Confirmed(
        code="confirmed" if isinstance(ratio, Ratio) and ratio.low > 1 else "not-faster",
        knobs=dict(knobs),
        left_out=dict(left_out or {}),
        plain=plain,
        tuned=tuned,
        epochs=epochs,
        length=RunLength(epochs=epochs, source="seen") if seen else length,
        ratio=ratio,
        pairs=arms.pairs,
        whole=whole,
        turns=min((run.turns for run in (*arms.plain, *arms.tuned)), default=0),
        put_on_step=next((run.put_on_step for run in arms.tuned if run.put_on_step is not None), None),
        plain_step_s=_least([run.step_s for run in arms.plain]),
        workers=next((run.workers for run in reversed(arms.tuned)), {}),
    )


def _models(arms: Arms) -> tuple[RunModel, RunModel]:
    """No setting is on before the first batch: the start is the same in both, and all runs tell of it."""
    start = promise.bounded([run.parts["start"] for run in (*arms.plain, *arms.tuned)])
    models = [promise.model_of(side) for side in (arms.plain, arms.tuned)]
    plain, tuned = [RunModel(once={**one.once, "start": start}, each=one.each) for one in models]
    return plain, RunModel(once={**tuned.once, "building": promise.bounded(arms.building_s)}, each=tuned.each)


def ratio_for(plain: RunModel, tuned: RunModel, epochs: float | None) -> Ratio | Missing:
    if epochs is None:
        return promise.ratio_of(*(_each(one) for one in (plain, tuned)))
    return promise.speedup(plain, tuned, epochs)


def _plain_pace(runs: Sequence[Measured]) -> dict[str, float]:
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
        return WholeRunPromise(code=found.code, why=found.why, detail=found.detail, left_out=dict(found.left_out))
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
        left_out=dict(found.left_out),
        put_on_step=found.put_on_step,
        plain_step_s=found.plain_step_s,
        workers=dict(found.workers),
        building=found.building,
    )


def _each(model: RunModel) -> Seconds:
    return promise.total(RunModel(each=model.each), 1.0)


def _with_loop(plain: RunModel, tuned: RunModel, loop: Ratio) -> RunModel:
    """The tuned run with steps as much faster as the search found them."""
    steps = plain.each["steps"]
    found = Seconds(value=steps.value / loop.value, low=steps.low / loop.high, high=steps.high / loop.low)
    return RunModel(once=tuned.once, each={**tuned.each, "steps": found})
