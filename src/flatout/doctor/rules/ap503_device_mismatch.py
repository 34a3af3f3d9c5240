"""AP503 device-mismatch: one operation gets tensors that lie on two devices."""

from __future__ import annotations

from collections import Counter

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import symptom
from flatout.machine.machine_facts import Facts
from flatout.machine.run_look import PlacedTensor

OF_EACH_DEVICE = 3


def check(facts: Facts) -> Finding | None:
    found = symptom(facts, "device-mismatch")
    if found is None:
        return None
    first, second = (str(found.params.get(name, "")) for name in ("first", "second"))
    steps = [Fix(text="inputs"), Fix(text="made-inside"), Fix(text="buffers")]
    if first.startswith("cuda") and second.startswith("cuda"):
        steps.insert(0, Fix(text="two-cards"))
    mix = facts.application.run.device_mix
    named = [f"{tensor.name} ({tensor.device})" for tensor in _odd_ones(mix.tensors)] if mix else []
    return RULE.found(
        *steps,
        Fix(text="find"),
        first=first or None,
        second=second or None,
        site=mix.site if mix else None,
        tensors=named or None,
        symptom=found.code,
    )


def _odd_ones(tensors: list[PlacedTensor]) -> list[PlacedTensor]:
    """A few of each device, the device with the fewest first: all that were in sight of the line would fill a screen."""
    counted = Counter(tensor.device for tensor in tensors)
    shown: list[PlacedTensor] = []
    for device, _ in sorted(counted.items(), key=lambda item: item[1]):
        shown += [tensor for tensor in tensors if tensor.device == device][:OF_EACH_DEVICE]
    return shown


RULE = Rule(code="AP503", name="device-mismatch", layer=Layer.APPLICATION, check=check)
