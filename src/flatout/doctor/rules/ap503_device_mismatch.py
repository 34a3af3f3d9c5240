"""AP503 device-mismatch: one operation gets tensors that lie on two devices."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.seen import symptom
from flatout.machine.model import Facts


def check(facts: Facts) -> Finding | None:
    found = symptom(facts, "device-mismatch")
    if found is None:
        return None
    first, second = (str(found.params.get(name, "")) for name in ("first", "second"))
    steps = [Fix(text="inputs"), Fix(text="made-inside"), Fix(text="buffers")]
    if first.startswith("cuda") and second.startswith("cuda"):
        steps.insert(0, Fix(text="two-cards"))
    return RULE.found(*steps, Fix(text="find"), first=first or None, second=second or None, symptom=found.code)


RULE = Rule(code="AP503", name="device-mismatch", layer=Layer.APPLICATION, check=check)
