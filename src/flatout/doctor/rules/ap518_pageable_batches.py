"""AP518 pageable-batches: batches lie in ordinary memory, so that every copy to the card takes a detour. A note."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.seen import any_nvidia_gpu, known, symptom
from flatout.machine.model import Facts


def check(facts: Facts) -> Finding | None:
    script, gpu = facts.application.script, any_nvidia_gpu(facts)
    if script.pin_memory is not False or gpu is None or facts.system.wsl is True:
        return None  # WSL allows little page-locked memory: there it is no advice
    if symptom(facts, "pin-memory-thread-exited"):
        return None
    return RULE.found(
        Fix(text="pin"),
        Fix(text="non-blocking"),
        severity=Severity.NOTE,
        gpu=gpu,
        workers=known(script.workers),
        line=script.lines.get("pin_memory"),
    )


RULE = Rule(code="AP518", name="pageable-batches", layer=Layer.APPLICATION, check=check)
