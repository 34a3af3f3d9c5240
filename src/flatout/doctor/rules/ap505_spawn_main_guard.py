"""AP505 spawn-main-guard: every loader worker runs the whole script again, because nothing guards it."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import known, symptom
from flatout.machine.machine_facts import Facts
from flatout.machine.versions import at_least

IMPORTING = ("spawn", "forkserver")  # start methods whose processes import the script anew
FORKSERVER_SINCE = "3.14"  # Linux's default start method from this Python on


def check(facts: Facts) -> Finding | None:
    script, told = facts.application.script, symptom(facts, "spawn-bootstrapping")
    method = _method(facts)
    workers = known(script.workers) or 0
    if not told and not (script.main_guard is False and workers > 0 and method in IMPORTING):
        return None
    return RULE.found(
        Fix(text="guard"),
        Fix(text="guard-code"),
        Fix(text="without-workers"),
        system=facts.system.name,
        start_method=method or "spawn",
        workers=workers or None,
        line=script.lines.get("main_guard") if script.main_guard is False else None,
    )


def _method(facts: Facts) -> str | None:
    """What the script sets, else the system's default."""
    chosen, system = known(facts.application.script.start_method), known(facts.system.name)
    if chosen or system in ("Windows", "Darwin"):
        return chosen or "spawn"
    python = known(facts.python.version)
    return "forkserver" if system == "Linux" and python and at_least(python, FORKSERVER_SINCE) else None


RULE = Rule(
    code="AP505",
    name="spawn-main-guard",
    layer=Layer.APPLICATION,
    check=check,
    explains=("pin-memory-thread", "dataloader-bottleneck"),
)
