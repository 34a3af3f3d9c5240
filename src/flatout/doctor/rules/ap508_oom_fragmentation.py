"""AP508 oom-fragmentation: memory ran out although torch holds enough of it, in pieces too small to use."""

from __future__ import annotations

from flatout.doctor import shortage
from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import gib, known, symptom
from flatout.doctor.remedy import set_variable
from flatout.machine.machine_facts import Facts
from flatout.machine.versions import at_least

VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
EXPANDABLE_SINCE = "2.1"


def check(facts: Facts) -> Finding | None:
    short, told = shortage.read(facts), symptom(facts, "memory-fragmented")
    # torch's own advice speaks of fragmentation in every message: where there are figures, they decide.
    counted = short is not None and short.unused is not None
    if not (short.fragmented if short is not None and counted else told):
        return None
    # In a paste the setting may be that advice too.
    if facts.source == "probed" and any("expandable_segments:true" in _setting(facts, name) for name in VARIABLES):
        return None  # then pieces grow instead of piling up, and what is unused is only kept for the next step
    if short is None or short.unused is None:
        return RULE.found(
            *_fix(facts), severity=Severity.FAULT if short else Severity.SLOW, certain=False, symptom=told and told.code
        )
    return RULE.found(
        *_fix(facts),
        certain=short.tried is None or short.unused >= short.tried,
        unused_gib=gib(short.unused),
        allocated_gib=gib(short.allocated),
        reserved_gib=gib(short.reserved),
        tried_gib=gib(short.tried),
        total_gib=gib(short.total),
    )


def _setting(facts: Facts, name: str) -> str:
    return facts.application.environment.get(name, "").lower().replace(" ", "")


def _fix(facts: Facts) -> list[Fix]:
    version = known(facts.torch.version)
    old = version is not None and not at_least(version, EXPANDABLE_SINCE)
    # Windows' drivers have no way to grow a segment.
    value = "max_split_size_mb:128" if old or facts.system.name == "Windows" else "expandable_segments:True"
    return [set_variable(facts, VARIABLES[0], value), Fix(text="largest-first"), Fix(text="shapes"), Fix(text="empty-cache")]


RULE = Rule(code="AP508", name="oom-fragmentation", layer=Layer.APPLICATION, check=check, explains=("out-of-memory",))
