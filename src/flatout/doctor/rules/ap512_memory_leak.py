"""AP512 memory-leak: each step keeps a little memory, until none is left."""

from __future__ import annotations

from flatout.doctor import shortage
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.seen import gib, symptom
from flatout.machine.model import Facts


def check(facts: Facts) -> Finding | None:
    if symptom(facts, "memory-grows") is None:
        return None
    short = shortage.read(facts)
    return RULE.found(
        Fix(text="detach"),
        Fix(text="graphs"),
        Fix(text="hooks"),
        Fix(text="snapshot"),
        Fix(text="not-cache"),
        ended_in_oom=short is not None,
        allocated_gib=gib(short.allocated) if short else None,
        total_gib=gib(short.total) if short else None,
    )


RULE = Rule(
    code="AP512", name="memory-leak", layer=Layer.APPLICATION, check=check, explains=("out-of-memory", "performance-falling")
)
