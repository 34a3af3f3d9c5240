"""AP513 exploding-loss: the loss grows without bound, or is not a number any more."""

from __future__ import annotations

from statistics import median

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import known, symptom
from flatout.machine.machine_facts import Facts

# The middle of the last losses against the middle of the first: noise, curricula and warm restarts stay below.
TIMES = 10.0
FEWEST_POINTS = 20
ENDS = 5  # points at each end


def check(facts: Facts) -> Finding | None:
    return _measured(facts) or _told(facts)


def _measured(facts: Facts) -> Finding | None:
    losses, regime = facts.application.run.losses, facts.application.run.device.regime
    half = known(regime.autocast) if regime else None
    values = [value for _, value in losses.points]
    broken = known(losses.not_finite_from)
    if broken is not None:
        last = values[-1] if values else None
        return RULE.found(*_fix(half, at_once=not values), step=broken, value="NaN", before=_shown(last), mixed_precision=half)
    if len(values) < FEWEST_POINTS:
        return None
    first, end = median(values[:ENDS]), median(values[-ENDS:])
    # A loss that may be negative has no scale to grow by.
    if first <= 0 or min(values) < 0 or end < TIMES * first or min(values[-ENDS:]) < TIMES * first / 2:
        return None
    step = losses.points[-1][0]
    return RULE.found(*_fix(half), certain=False, step=step, value=_shown(end), before=_shown(first), mixed_precision=half)


def _shown(loss: float | None) -> str | None:
    return None if loss is None else f"{loss:.4g}"


def _told(facts: Facts) -> Finding | None:
    told = symptom(facts, "loss-explodes")
    if told is None:
        return None
    half = known(facts.application.script.mixed_precision)
    return RULE.found(*_fix(half), mixed_precision=half, symptom=told.code)


def _fix(half: bool | None, at_once: bool = False) -> list[Fix]:
    steps = [Fix(text="clip"), Fix(text="rate"), Fix(text="warmup")]
    if half is not False:
        steps.append(Fix(text="scaler"))
    # Broken from the first step on, it is the data or the model, and no step was too large.
    return [Fix(text="anomaly"), *steps] if at_once else [*steps, Fix(text="anomaly")]


RULE = Rule(code="AP513", name="exploding-loss", layer=Layer.APPLICATION, check=check)
