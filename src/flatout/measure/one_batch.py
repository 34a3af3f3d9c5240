"""Compares two trainings on one batch: loss, and length and direction of the gradients.

Both began with one seed, and took the same plain steps before knobs were put on one of them; where their losses until then
differ, the script is not repeatable and nothing can be said. Loss curves alone are fooled: a term that is left out makes the
loss smaller, and an optimizer that divides by the gradient's size hides a wrong scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from flatout.base.records import Struct, field

REPEATABLE = 1e-4  # of the loss: other data or other weights show in losses before the knobs, even where all are near chance
LOSS, LENGTH, COSINE = 0.03, 1.2, 0.9  # rounding to bf16 never came near in the small specimens
BY_CHANCE = 2.0  # times what other random numbers change by themselves
SLACK = 0.15  # of the cosine below what these leave
COUNTS = 0.01  # of the length of all: a parameter with so much has a gradient that says something …
TURNED = 0.5  # … and its own cosine is not below this; rounding leaves nine tenths and more

SAME, NOT_REPEATABLE = "same-batch-same-step", "not-repeatable"
FIRST, LATER = 0, 1  # the first step under the knobs, and one when what records its kernels replays them


class Look(Struct, frozen=True, kw_only=True):
    """What the agent tells of one step; `begun` and `ended` count losses."""

    begun: int
    ended: int
    norms: list[float | None]  # of each parameter's gradient
    sample: list[list[float]]  # of each one's numbers


class Training(Struct, frozen=True, kw_only=True):
    losses: list[float]
    begun: int = 0  # losses before the knobs
    looks: list[Look | None] = field(default_factory=list)


Pairs = Sequence[tuple[Training, Training]]  # of one seed, plain first


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


def compare(pairs: Pairs, by_chance: Pairs = (), which: int = FIRST) -> OneBatch:
    """`by_chance`: plain trainings, and the same where dropout and its like drew other numbers."""
    repeated = [(plain, changed) for plain, changed in pairs if _same_before(plain, changed)]
    if pairs and not repeated:
        return OneBatch(ok=None, code=NOT_REPEATABLE, pairs=0)
    seen = [one for plain, changed in repeated if (one := _seen(plain, changed, which)) is not None]
    if not seen:
        return OneBatch(ok=None, code="not-comparable", pairs=0)
    chance = [one for plain, other in by_chance if (one := _seen(plain, other, which)) is not None]
    loss, length, cosine = (median(getattr(one, name) for one in seen) for name in ("loss", "length", "cosine"))
    code = SAME
    if _most(seen, "missing", chance):
        code = "gradient-missing"
    elif abs(loss - 1) > max([LOSS, *(BY_CHANCE * abs(one.loss - 1) for one in chance)]):
        code = "other-loss"
    elif abs(math.log(length)) > max([math.log(LENGTH), *(BY_CHANCE * abs(math.log(one.length)) for one in chance)]):
        code = "other-length"
    elif cosine < min([COSINE, *(one.cosine - SLACK for one in chance)]) or _most(seen, "turned", chance):
        code = "other-direction"
    return OneBatch(ok=code == SAME, code=code, pairs=len(seen), loss=loss, length=length, cosine=cosine)


def _most(seen: Sequence[_Seen], name: str, chance: Sequence[_Seen]) -> bool:
    """In most of the pairs, and not where other random numbers do the same."""
    return sum(getattr(one, name) for one in seen) > len(seen) / 2 and not any(getattr(one, name) for one in chance)


def _same_before(plain: Training, changed: Training) -> bool:
    if not 0 < plain.begun == changed.begun or plain.begun > min(len(plain.losses), len(changed.losses)):
        return False
    before = list(zip(plain.losses[: plain.begun], changed.losses[: plain.begun], strict=True))
    scale = max(abs(loss) for loss, _ in before) or 1.0
    return all(abs(one - other) <= REPEATABLE * scale for one, other in before)


def _seen(plain: Training, changed: Training, which: int) -> _Seen | None:
    """None where the two cannot be laid side by side; numbers that are none show in the curves."""
    a, b = (one.looks[which] if len(one.looks) > which else None for one in (plain, changed))
    if a is None or b is None or (a.begun, a.ended) != (b.begun, b.ended) or not a.begun < a.ended:
        return None
    parameters = _parameters(a, b)
    here, there = sum(plain.losses[a.begun : a.ended]), sum(changed.losses[b.begun : b.ended])
    lengths = [math.sqrt(sum(getattr(one, side) ** 2 for one in parameters)) for side in ("plain", "changed")]
    if not lengths[0] or not all(map(math.isfinite, [here, there, *lengths])):
        return None
    large = [one for one in parameters if one.plain > COUNTS * lengths[0]]
    cosine = sum(one.cosine * one.plain * one.changed for one in parameters) / (lengths[0] * lengths[1] or 1.0)
    return _Seen(
        loss=1 + (there - here) / _size(plain.losses[: a.ended], here),
        length=max(lengths[1] / lengths[0], 1e-9),  # something whose logarithm exists
        cosine=cosine,
        missing=any(not one.changed for one in large),
        turned=any(one.cosine < TURNED for one in large if one.changed),
    )


def _size(losses: Sequence[float], here: float) -> float:
    """What a difference is a share of: the loss, or where losses cross zero, how far they reach."""
    reach = max(abs(loss) for loss in losses)
    crosses = min(losses) < 0 < max(losses)
    return (max(reach, abs(here)) if crosses else abs(here)) or reach or 1.0


def _parameters(a: Look, b: Look) -> list[_Parameter]:
    if len({len(part) for part in (a.norms, b.norms, a.sample, b.sample)}) > 1:
        return []
    return [_Parameter(*one) for one in zip(a.norms, b.norms, a.sample, b.sample, strict=True)]


class _Parameter:
    """One parameter's gradients, plain and changed."""

    def __init__(self, plain: float | None, changed: float | None, here: Sequence[float], there: Sequence[float]) -> None:
        self.plain, self.changed = plain or 0.0, changed or 0.0
        self.cosine = _cosine(here, there) if len(here) == len(there) else 0.0


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    dot = sum(one * other for one, other in zip(a, b, strict=True))
    size = math.sqrt(sum(one * one for one in a) * sum(other * other for other in b))
    if not math.isfinite(dot) or not math.isfinite(size):
        return 0.0
    return dot / size if size else 1.0  # of what was looked at, nothing moves: its length says more
