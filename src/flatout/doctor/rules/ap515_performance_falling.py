"""AP515 performance-falling: the training becomes slower as it goes on, and nothing that is known says why."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import gpus, known, slowed, symptom
from flatout.doctor.remedy import observe
from flatout.machine.machine_facts import Facts


def check(facts: Facts) -> Finding | None:
    told = symptom(facts, "slower-over-time")
    if told is None or slowed(facts):
        return None
    warmest = max((value for gpu in gpus(facts) if (value := known(gpu.temperature_c)) is not None), default=None)
    return RULE.found(
        Fix(text="heat"),
        Fix(command="nvidia-smi --query-gpu=temperature.gpu,clocks.sm,power.draw,memory.used --format=csv -l 5"),
        Fix(text="growth"),
        *observe(facts),
        severity=Severity.SLOW,
        certain=False,
        temperature_c=warmest,
        symptom=told.code,
    )


RULE = Rule(code="AP515", name="performance-falling", layer=Layer.APPLICATION, check=check)
