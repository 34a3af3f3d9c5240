"""Whether two trainings make the same of one batch: its loss, and length and direction of its gradients.

Both began with one seed, and took the same plain steps before knobs were put on one of them; where their losses until then
differ, the script is not repeatable and nothing can be said. Loss curves alone are fooled: a term that is left out makes the
loss smaller, and an optimizer that divides by the gradient's size hides a wrong scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from flatout.base.records import Struct

REPEATABLE = 1e-4  # of the loss: other data or other weights show in losses before the knobs, even where all are near chance
LOSS, LENGTH, COSINE = 0.03, 1.2, 0.9  # what rounding to bf16 never came near in the four specimens
BY_CHANCE = 2.0  # times what other random numbers change by themselves
SLACK = 0.15  # of the cosine below what these leave
COUNTS = 0.01  # of the length of all: a parameter with so much has a gradient that says something …
TURNED = 0.5  # … and its own cosine is not below this; rounding leaves nine tenths and more


class FirstStep(Struct, frozen=True, kw_only=True):
    """What the agent tells of the step after the knobs were put on; `begun` and `ended` count losses."""

    begun: int
    ended: int
    norms: list[float | None]  # of each parameter's gradient
    sample: list[list[float]]  # of each one's numbers


class Training(Struct, frozen=True, kw_only=True):
    losses: list[float]
    first: FirstStep | None = None


class OneBatch(Struct, frozen=True, kw_only=True):
    """`ok` is None where nothing can be said. Medians over the pairs."""

    ok: bool | None
    code: str
    pairs: int
    loss: float | None = None  # changed to plain
    length: float | None = None
    cosine: float | None = None


class _Seen(Struct, frozen=True, kw_only=True):
    loss: float
    length: float
    cosine: float
    missing: bool
    turned: bool


def compare(pairs: Sequence[tuple[Training, Training]], by_chance: tuple[Training, Training] | None = None) -> OneBatch:
    """Pairs of one seed, plain first. `by_chance`: two plain trainings that differ in what the device drew."""
    looked = [(plain, changed) for plain, changed in pairs if plain.first and changed.first]
    if not looked:
        return OneBatch(ok=None, code="no-gradients", pairs=0)
    seen = [one for plain, changed in looked if (one := _seen(plain, changed)) is not None]
    if not seen:
        return OneBatch(ok=None, code="not-repeatable", pairs=0)
    chance = _seen(*by_chance) if by_chance is not None else None
    loss, length, cosine = (median(getattr(one, name) for one in seen) for name in ("loss", "length", "cosine"))
    code = "same-batch-same-step"
    if _most(seen, "missing", chance):
        code = "gradient-missing"
    elif not abs(loss - 1) <= max(LOSS, BY_CHANCE * abs(chance.loss - 1) if chance else 0.0):
        code = "other-loss"
    elif not abs(math.log(length)) <= max(math.log(LENGTH), BY_CHANCE * abs(math.log(chance.length)) if chance else 0.0):
        code = "other-length"
    elif not cosine >= min(COSINE, chance.cosine - SLACK if chance else 1.0) or _most(seen, "turned", chance):
        code = "other-direction"
    ok = code == "same-batch-same-step"
    return OneBatch(ok=ok, code=code, pairs=len(seen), loss=loss, length=length, cosine=cosine)


def _most(seen: Sequence[_Seen], name: str, chance: _Seen | None) -> bool:
    """In most of the pairs, and not where other random numbers do the same."""
    return sum(getattr(one, name) for one in seen) > len(seen) / 2 and not (chance is not None and getattr(chance, name))


def _seen(plain: Training, changed: Training) -> _Seen | None:
    """None where both were not the same before the knobs."""
    a, b = plain.first, changed.first
    if a is None or b is None or len(a.norms) != len(b.norms) or a.ended - a.begun != b.ended - b.begun:
        return None
    losses = [*plain.losses[: a.ended], *changed.losses[: b.ended]]
    if a.begun != b.begun or not 0 < a.begun < a.ended or not all(map(math.isfinite, losses)):
        return None
    scale = max(abs(loss) for loss in losses) or 1.0
    before = zip(plain.losses[: a.begun], changed.losses[: b.begun], strict=True)
    if any(abs(one - other) > REPEATABLE * scale for one, other in before):
        return None
    here, there = sum(plain.losses[a.begun : a.ended]), sum(changed.losses[b.begun : b.ended])
    lengths = [math.sqrt(sum(norm * norm for norm in one.norms if norm is not None)) for one in (a, b)]
    if not lengths[0] or not math.isfinite(lengths[0]):
        return None
    parameters = [_Parameter(*one) for one in zip(a.norms, b.norms, a.sample, b.sample, strict=True)]
    large = [one for one in parameters if one.plain > COUNTS * lengths[0]]
    return _Seen(
        loss=1 + (there - here) / (abs(here) or scale),  # losses that cross zero have no ratio of their own
        length=_positive(lengths[1] / lengths[0]),
        cosine=sum(one.cosine * one.plain * one.changed for one in parameters) / (lengths[0] * lengths[1] or 1.0),
        missing=any(not one.changed for one in large),
        turned=any(one.cosine < TURNED for one in large if one.changed),
    )


class _Parameter:
    """One parameter's gradients, plain and changed."""

    def __init__(self, plain: float | None, changed: float | None, here: Sequence[float], there: Sequence[float]) -> None:
        self.plain, self.changed = plain or 0.0, changed or 0.0
        self.cosine = _cosine(here, there) if len(here) == len(there) else 0.0


def _positive(ratio: float) -> float:
    """Something whose logarithm exists: no gradients at all are as wrong as gradients that are no numbers."""
    return ratio if math.isfinite(ratio) and ratio > 0 else 1e-9


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    if not all(map(math.isfinite, b)):
        return 0.0
    dot = sum(one * other for one, other in zip(a, b, strict=True))
    size = math.sqrt(sum(one * one for one in a) * sum(other * other for other in b))
    return dot / size if size else 1.0  # of what was looked at, nothing moves: its length says more
