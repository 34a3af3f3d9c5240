"""Compares a run under a profile with the profile's promise, part by part. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from flatout.base.records import Missing, Struct, field
from flatout.knobs.model import Came, KnobUse
from flatout.knobs.profile import Promise
from flatout.measure.promise import EACH, ONCE, UNIT_STEPS

SHORT = 0.95  # of the promise: below it the part that fell short is named
LEAST_EPOCHS = 0.5  # below it a run was stopped before it could show anything
CHANGED = ("cut-short", "torch-too-old", "no-steps")  # notes of a run that says nothing of the promise
# Why a setting is not on, where it is the run that is another and not flatout that failed.
ANOTHER_RUN = ("ended-before", "other-shapes", "forked-child", "batch-given-by-you")
NOT_JUDGED = Missing("not-judged")


class Delivery(Struct, kw_only=True):
    """`code`: delivered, short; not-judged (`why`). What is promised is for a run of this one's length."""

    code: str
    why: str = ""
    speedup: float | Missing = NOT_JUDGED  # promised for a run of this length
    delivered: float | Missing = NOT_JUDGED  # the plain run's time as measured when the profile was made ÷ this run's
    ratio: float | Missing = NOT_JUDGED  # delivered ÷ promised
    short_of: str = ""  # the part that took most beyond what was promised
    short_s: float = 0.0  # how much beyond
    promised_s: float | Missing = NOT_JUDGED
    plain_s: float | Missing = NOT_JUDGED  # of a run of this length
    parts: dict[str, float] = field(default_factory=dict)  # promised, seconds by part; those of the run are its `parts`
    missing: list[str] = field(default_factory=list)  # settings that were kept and did not come on: an error of flatout's


def delivery(
    promise: Promise,
    parts: Mapping[str, float],
    done: tuple[int, int],
    ended: tuple[int, Collection[str]],
    knobs: Sequence[KnobUse],
) -> Delivery:
    """`done`: steps and batches; `ended`: exit code and the codes of the run's notes."""
    refused = [use for use in knobs if use.source == "profile" and use.came is Came.REFUSED]
    missing = [use.name for use in refused if promise.plain and use.code not in ANOTHER_RUN]
    why = _why_not(promise, done, ended, knobs)
    if why:
        return Delivery(code="not-judged", why=why, missing=missing)
    epochs = epochs_of(promise, *done)
    # No setting is on before the first batch: a start that takes longer today would have been as long without any.
    start = {"start": parts.get("start", 0.0)}
    promised, plain = ({**scaled(side, promise.epochs, epochs), **start} for side in (promise.tuned, promise.plain))
    promised = with_put_off(promise, promised, plain, done[0])
    wall, promised_s, plain_s = (math.fsum(side.values()) for side in (parts, promised, plain))
    if wall <= 0 or promised_s <= 0:
        return Delivery(code="not-judged", why="nothing-timed", missing=missing)
    ratio = promised_s / wall
    part, beyond = shortest(parts, promised)
    short = ratio < SHORT
    return Delivery(
        code="short" if short else "delivered",
        speedup=plain_s / promised_s,
        delivered=plain_s / wall,
        ratio=ratio,
        short_of=part if short else "",
        short_s=beyond if short else 0.0,
        promised_s=promised_s,
        plain_s=plain_s,
        parts=promised,
        missing=missing,
    )


def with_put_off(promise: Promise, promised: dict[str, float], plain: Mapping[str, float], steps: int) -> dict[str, float]:
    """Until a setting comes on that costs time once, steps are slower; a run that ends before does not pay for it."""
    step = max(promise.put_off.values(), default=0)
    if not step:
        return promised
    building = plain.get("building", 0.0) if steps <= step else promised.get("building", 0.0)
    slower_s = min(steps, step) * promise.put_off_saves_s
    return {**promised, "building": building, "steps": promised.get("steps", 0.0) + slower_s}


def epochs_of(promise: Promise, steps: int, batches: int) -> float:
    return batches / promise.batches if promise.batches else steps / UNIT_STEPS


def scaled(parts: Mapping[str, float], measured: float, epochs: float) -> dict[str, float]:
    """Parts of a run over `measured` epochs as those of one over `epochs`."""
    once = {name: parts.get(name, 0.0) for name in ONCE}
    return {**once, **{name: parts.get(name, 0.0) * epochs / measured for name in EACH}}


def shortest(parts: Mapping[str, float], promised: Mapping[str, float]) -> tuple[str, float]:
    """The part that took most beyond its promise, and by how much."""
    beyond = {name: parts.get(name, 0.0) - promised.get(name, 0.0) for name in {*parts, *promised}}
    name = max(sorted(beyond), key=lambda one: beyond[one])
    return name, beyond[name]


def _why_not(promise: Promise, done: tuple[int, int], ended: tuple[int, Collection[str]], knobs: Sequence[KnobUse]) -> str:
    code, notes = ended
    if not promise.plain or not promise.tuned or promise.epochs <= 0:
        return "no-promise"
    if code != 0 or any(note in notes for note in CHANGED):
        return "stopped-early"
    if any(use.source != "profile" for use in knobs):
        return "other-settings"
    if epochs_of(promise, *done) < LEAST_EPOCHS:
        return "too-short"
    return ""
