"""PT413 triton-unsupported-card: the card is older than Triton supports, or newer than the installed Triton knows."""

from __future__ import annotations

from flatout.doctor import queries
from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.remedy import reinstall_torch
from flatout.machine.machine_facts import Facts
from flatout.machine.versions import at_least, parse

OLDEST_CARD = "7.0"  # Triton's own minimum
BLACKWELL = (10, 0)
FIRST_FOR_BLACKWELL = "3.3"  # the first Triton that knows capability 10.0 and 12.0


def check(facts: Facts) -> Finding | None:
    if facts.torch.available is not True and not queries.symptom(facts, "triton-missing"):
        return None
    cards = queries.nvidia_cards(facts)
    if not cards or queries.cpu_build(facts):
        return None
    name, capability = max(cards, key=lambda card: parse(card[1]))  # another card that it serves is enough
    triton = queries.known(facts.torch.triton)
    too_old = not at_least(capability, OLDEST_CARD)
    too_new = parse(capability) >= BLACKWELL and triton is not None and not at_least(triton, FIRST_FOR_BLACKWELL)
    if not too_old and not too_new:
        return None
    asked = queries.symptom(facts, "triton-missing") is not None
    return RULE.found(
        *([Fix(text="without")] if too_old else reinstall_torch(facts)),
        severity=Severity.SLOW if asked else Severity.NOTE,
        gpu=name,
        capability=capability,
        triton=triton,
        minimum=OLDEST_CARD if too_old else FIRST_FOR_BLACKWELL,
    )


RULE = Rule(
    code="PT413",
    name="triton-unsupported-card",
    layer=Layer.PYTORCH,
    check=check,
    explains=("triton-missing-windows",),
)
