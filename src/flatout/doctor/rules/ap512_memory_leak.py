"""AP512 memory-leak: each step keeps a little memory, until none is left."""

from __future__ import annotations

from flatout.doctor import shortage
from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import gib, known, symptom
from flatout.machine.machine_facts import Facts
from flatout.machine.run_look import MemoryGrowth

# A trend that chance gives once in thirty thousand runs, and that has not ended by the second half of this one.
SIGNIFICANCE = 4.0
GOES_ON = 0.25  # of the growth falls into the last third of the run, or more

# Less is the allocator's rounding, and would fill no card in a month.
GROWN_BYTES = 4 << 20
BYTES_A_STEP = 1 << 10

# A card that is full within so many times the run's own length will be full in a real training.
SOON = 20


def check(facts: Facts) -> Finding | None:
    return _measured(facts) or _told(facts)


def _measured(facts: Facts) -> Finding | None:
    run = facts.application.run
    growth = run.device.growth
    if growth is None or not _leaks(growth):
        return None
    memory = run.device.memory
    total, used = (known(memory.total_bytes), known(memory.allocated_bytes)) if memory else (None, None)
    left = int((total - used) / growth.bytes_per_step) if total is not None and used is not None else None
    soon = left is not None and left <= SOON * (known(run.steps) or 0)
    return RULE.found(
        *_fix(),
        severity=Severity.FAULT if soon else Severity.SLOW,
        mib_a_step=_shown_mib(growth.bytes_per_step),
        grown_mib=round(growth.grown_bytes / 2**20, 1),
        steps=growth.steps,
        significance=growth.significance,
        steps_left_estimated=left,
        total_gib=gib(total),
    )


def _leaks(growth: MemoryGrowth) -> bool:
    if growth.significance < SIGNIFICANCE or growth.low_bytes_per_step <= 0:
        return False
    large = growth.grown_bytes >= GROWN_BYTES and growth.bytes_per_step >= BYTES_A_STEP
    return large and growth.late_bytes >= GOES_ON * growth.grown_bytes


def _shown_mib(count: float) -> float:
    mib = count / 2**20
    return round(mib, 1) if mib >= 1 else round(mib, 4)


def _told(facts: Facts) -> Finding | None:
    if symptom(facts, "memory-grows") is None:
        return None
    short = shortage.read(facts)
    return RULE.found(
        *_fix(),
        ended_in_oom=short is not None,
        allocated_gib=gib(short.allocated) if short else None,
        total_gib=gib(short.total) if short else None,
    )


def _fix() -> list[Fix]:
    return [Fix(text="detach"), Fix(text="graphs"), Fix(text="hooks"), Fix(text="snapshot"), Fix(text="not-cache")]


RULE = Rule(
    code="AP512", name="memory-leak", layer=Layer.APPLICATION, check=check, explains=("out-of-memory", "performance-falling")
)
