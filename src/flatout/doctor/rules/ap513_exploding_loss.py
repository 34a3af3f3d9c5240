"""AP513 exploding-loss: the loss grows without bound, or is not a number any more."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.seen import known, symptom
from flatout.machine.model import Facts


def check(facts: Facts) -> Finding | None:
    told = symptom(facts, "loss-explodes")
    if told is None:
        return None
    half = known(facts.application.script.mixed_precision)
    steps = [Fix(text="clip"), Fix(text="rate"), Fix(text="warmup")]
    if half is not False:
        steps.append(Fix(text="scaler"))
    return RULE.found(*steps, Fix(text="anomaly"), mixed_precision=half, symptom=told.code)


RULE = Rule(code="AP513", name="exploding-loss", layer=Layer.APPLICATION, check=check)
