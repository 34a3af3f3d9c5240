"""AP518 pageable-batches: batches lie in ordinary memory, so that every copy to the card takes a detour. A note."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import any_nvidia_gpu, known, saturated, symptom
from flatout.machine.machine_facts import Facts

# Of the training time: where copies take less, pinning gains nothing that could be measured.
COPY_SHARE = 0.1


def check(facts: Facts) -> Finding | None:
    return _measured(facts) or _told(facts)


def _measured(facts: Facts) -> Finding | None:
    run = facts.application.run
    copies, share = run.device.copies, run.shares.get("copy", 0.0)
    if "pin_memory" in run.knobs or copies is None or share < COPY_SHARE or copies.unpinned <= copies.pinned:
        return None
    if saturated(facts) or facts.system.wsl is True:
        return None
    looked = copies.unpinned + copies.pinned
    return RULE.found(
        Fix(text="pin"),
        Fix(text="non-blocking"),
        severity=Severity.SLOW,
        gpu=any_nvidia_gpu(facts) or "GPU",
        unpinned=copies.unpinned,
        copies=looked,
        share=round(100 * share),
        mib_a_copy=round(copies.bytes / looked / 2**20, 2),
    )


def _told(facts: Facts) -> Finding | None:
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


RULE = Rule(code="AP518", name="pageable-batches", layer=Layer.APPLICATION, check=check, knobs=("pin_memory", "non_blocking"))
