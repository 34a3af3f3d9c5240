"""AP516 low-utilisation: the GPU works but is mostly idle, and nothing that is known says why."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import gpus, known, number, slowed, symptom
from flatout.doctor.remedy import observe
from flatout.machine.machine_facts import Facts, Gpu

# A card that computes all the time shows more.
BUSY_PERCENT = 70

# A single look at a card that trains: only a very low figure says anything.
HARDLY_PERCENT = 30
TRAINING_BYTES = 1 << 30  # what a program that trains holds at least


def check(facts: Facts) -> Finding | None:
    told = symptom(facts, "low-utilisation")
    percent = number(told, "percent")
    if symptom(facts, "healthy-remark") or slowed(facts):
        return None
    if told and (percent is None or percent < BUSY_PERCENT):
        return _found(facts, percent, None, Severity.SLOW)
    for gpu in gpus(facts):
        if _hardly(gpu):
            return _found(facts, known(gpu.utilisation), gpu.name, Severity.NOTE)
    return None


def _hardly(gpu: Gpu) -> bool:
    """A Python program holds memory and uses the card, a little; at 0 % it may just be waiting, like a notebook."""
    running = any(
        "python" in (known(item.name) or "").lower() and (known(item.memory_bytes) or 0) >= TRAINING_BYTES
        for item in known(gpu.processes) or []
    )
    return running and 0 < (known(gpu.utilisation) or 0) < HARDLY_PERCENT


def _found(facts: Facts, percent: float | None, gpu: str | None, severity: Severity) -> Finding:
    unused = [Fix(text="not-used")] if percent == 0 else []
    return RULE.found(
        *unused,
        *observe(facts),
        Fix(text="usual"),
        severity=severity,
        certain=False,
        utilisation=percent,
        gpu=gpu,
    )


RULE = Rule(code="AP516", name="low-utilisation", layer=Layer.APPLICATION, check=check)
