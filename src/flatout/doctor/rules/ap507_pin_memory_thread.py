"""AP507 pin-memory-thread: the thread that copies batches into page-locked memory has died."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import known, symptom, system
from flatout.machine.machine_facts import Facts


def check(facts: Facts) -> Finding | None:
    if symptom(facts, "pin-memory-thread-exited") is None:
        return None
    steps = [Fix(text="first-error"), Fix(text="unpinned")]
    if system(facts) == "Windows":
        steps.append(Fix(text="windows"))
    if facts.system.wsl is True:
        steps.append(Fix(text="wsl"))
    script = facts.application.script
    return RULE.found(
        *steps,
        system=system(facts),
        workers=known(script.workers),
        line=script.lines.get("pin_memory"),
    )


RULE = Rule(code="AP507", name="pin-memory-thread", layer=Layer.APPLICATION, check=check)
