"""AP517 full-precision: the script trains in fp32 on a card with tensor cores. A note: only measuring tells the price."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.remedy import observe
from flatout.doctor.seen import any_nvidia_gpu, capability
from flatout.machine import cards
from flatout.machine.model import Facts
from flatout.machine.versions import at_least

TENSOR_CORES_SINCE, BF16_SINCE = "7.0", "8.0"


def check(facts: Facts) -> Finding | None:
    script, gpu, number = facts.application.script, any_nvidia_gpu(facts), capability(facts)
    if script.mixed_precision is not False or gpu is None or number is None or not at_least(number, TENSOR_CORES_SINCE):
        return None
    card = cards.find(gpu)
    if card is not None and card.tensor_cores is False:
        return None  # GTX 16xx: capability 7.5 without tensor cores
    kind = "bf16" if at_least(number, BF16_SINCE) else "fp16"
    steps = (Fix(text=kind), Fix(text="measure"), *observe(facts))
    return RULE.found(
        *steps, severity=Severity.NOTE, gpu=gpu, capability=number, precision=kind, line=script.lines.get("mixed_precision")
    )


RULE = Rule(code="AP517", name="full-precision", layer=Layer.APPLICATION, check=check)
