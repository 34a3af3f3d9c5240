"""What is promised of the user's whole run, in sentences: the headline first."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.measure.parts import PARTS
from flatout.measure.promise import PutOff, WholeRunPromise
from flatout.report import numbers, run_workers
from flatout.tune.confirmation.compare_whole_runs import COSTS_ONCE

WORTH_NAMING = 0.05  # of the tuned run: a part beside the steps that takes more is named
MOST_NAMED = 3
NOT_THE_LOOP = [name for name in PARTS if name != "steps"]


def sentences(whole: WholeRunPromise, words: Words) -> list[str]:
    if whole.code in ("no-time", "plain-fails", "tuned-fails"):
        why = words(f"whole-run.why-{whole.why}", code=whole.detail) if whole.why and whole.code != "no-time" else ""
        told = [words(f"whole-run.{whole.code}", why=why, budget=whole.budget)]
        return told + _left_out(whole, words)
    told = [_headline(whole, words)]
    told += [_repaid(whole, words)] if whole.repaid_after else []
    told += [words("whole-run.put-together")] if not whole.whole else []
    told += [words("whole-run.no-turn")] if not whole.whole and not whole.turns and whole.unit == "epoch" else []
    told += [words("whole-run.no-ending")] if not whole.ending and whole.unit == "epoch" else []
    told += [words("whole-run.one-pair")] if whole.pairs == 1 else []
    told += [words("whole-run.cold-first", size=numbers.gibibytes(whole.cold_bytes))] if whole.cold_bytes else []
    told += [words("whole-run.beyond-memory", size=numbers.gibibytes(whole.data_bytes))] if whole.data_bytes else []
    told += _workers(whole, words)
    told += _building(whole, words)
    told += [_put_off(name, off, words) for name, off in whole.put_off.items()]
    told += _left_out(whole, words)
    told += [words(f"whole-run.{whole.code}")] if whole.code in ("not-faster", "unclear") else []
    told += [words("whole-run.more-runs", budget=whole.budget)] if whole.code == "unclear" and whole.budget else []
    return told


def _headline(whole: WholeRunPromise, words: Words) -> str:
    told = {
        "speedup": times(whole.speedup),
        "low": times(whole.interval[0] if whole.interval else Missing("not-measured")),
        "high": times(whole.interval[1] if whole.interval else Missing("not-measured")),
        "loop": times(whole.loop),
        "left": _left(whole, words),
    }
    if isinstance(whole.plain_s, float) and isinstance(whole.tuned_s, float):
        walls = {"plain": numbers.seconds(whole.plain_s), "tuned": numbers.seconds(whole.tuned_s)}
        return words("whole-run.headline", length=length(whole, words), **walls, **told)
    each = {name: numbers.seconds(whole.each[name]) for name in ("plain", "tuned")}
    once = {f"once_{name}": numbers.seconds(whole.once[name]) for name in ("plain", "tuned")}
    return words(f"whole-run.each-{whole.unit}", **each, **once, **told)


def length(whole: WholeRunPromise, words: Words) -> str:
    planned = whole.planned or {}
    epochs, steps = planned.get("epochs"), planned.get("steps")
    shown = numbers.epochs(epochs) if whole.unit == "epoch" and isinstance(epochs, int | float) else None
    if shown is not None:
        return words("whole-run.epoch-one" if shown == "1" else "whole-run.epochs", count=shown)
    return words("whole-run.steps", count=numbers.count(steps)) if isinstance(steps, int | float) else words("whole-run.run")


def _repaid(whole: WholeRunPromise, words: Words) -> str:
    count = whole.repaid_after or 0.0
    if whole.unit == "epoch":
        return words("whole-run.repaid-epochs", count=numbers.count(max(0.1, round(count, 1))))
    return words("whole-run.repaid-steps", count=numbers.count(round(100 * count)))


def _workers(whole: WholeRunPromise, words: Words) -> list[str]:
    said = run_workers.told(whole.workers, words)
    return [words("whole-run.workers", told=words("run.semicolon").join(said))] if said else []


def _building(whole: WholeRunPromise, words: Words) -> list[str]:
    """Which price of compiling is in the figures: with the compiler's cache filled, as later runs find it, or of one run."""
    told = whole.building
    if told is None:
        return []
    counted = numbers.seconds(told.seconds)
    if isinstance(told.cold_s, float):
        return [words("whole-run.building-warm", counted=counted, cold=numbers.seconds(told.cold_s))]
    return [words("whole-run.building-warm-alone" if told.warm else "whole-run.building-once", counted=counted)]


def _left_out(whole: WholeRunPromise, words: Words) -> list[str]:
    once = {name: value for name, value in whole.left_out.items() if name in COSTS_ONCE}
    slower = {name: value for name, value in whole.left_out.items() if name not in COSTS_ONCE}
    said = [words("whole-run.left-out", knobs=_knobs(once, words))] if once else []
    said += [words("whole-run.left-out-slower", knobs=_knobs(slower, words))] if slower else []
    said += [words("whole-run.left-unconfirmed", knobs=_knobs(whole.unconfirmed, words))] if whole.unconfirmed else []
    return said + ([words("whole-run.not-on", knobs=words("run.comma").join(whole.not_on))] if whole.not_on else [])


def _put_off(name: str, off: PutOff, words: Words) -> str:
    told = {"cost": numbers.seconds(off.costs_s), "saved": numbers.seconds(off.saves_s), "step": numbers.count(off.step)}
    return words("whole-run.put-off", knob=name, **told)


def _left(whole: WholeRunPromise, words: Words) -> str:
    """What the tuned run spends outside its steps: that is what is left to win."""
    parts = whole.parts.get("tuned", {})
    spent = sum(parts.values())
    named = [name for name in NOT_THE_LOOP if parts.get(name, 0.0) > WORTH_NAMING * spent]
    named = sorted(named, key=lambda name: -parts[name])[:MOST_NAMED]
    if not named:
        return ""
    told = [words("whole-run.part", name=words(f"part.{name}"), time=numbers.seconds(parts[name])) for name in named]
    return words("whole-run.left", parts=words("run.comma").join(told))


def _knobs(knobs: dict[str, str], words: Words) -> str:
    return words("run.comma").join(f"{name}={value}" for name, value in knobs.items())


def times(value: float | Missing) -> str:
    if isinstance(value, Missing):
        return "?"
    return f"{value:.1f}" if value >= 1.95 else f"{value:.2f}"
