"""AP510 sysmem-fallback: on Windows the driver spills into main memory instead of running out: slow instead of an error."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.seen import HELD_BACK, SLOW_CAUSES, events, gib, gpus, known, symptom, windows_driver
from flatout.machine.model import Facts, Gpu
from flatout.machine.versions import at_least

# The first driver of Windows that spills CUDA's memory.
SPILLS_SINCE = "531.79"

# So full that the next allocation goes elsewhere; Windows keeps a little free by itself.
FULL = 0.97


def check(facts: Facts) -> Finding | None:
    told, slower = symptom(facts, "memory-spill"), symptom(facts, "slow-after-update")
    driver = known(facts.driver.version)
    able = driver is None or at_least(driver, SPILLS_SINCE)
    if told and facts.system.name != "Darwin":
        return _found(facts, None, certain=windows_driver(facts) or known(facts.system.name) is None)
    if not windows_driver(facts) or not able:
        return None
    full = next((gpu for gpu in gpus(facts) if _full(gpu)), None)
    if full:
        return _found(facts, full, certain=False)
    return _found(facts, None, certain=False) if slower and not _otherwise_slow(facts) else None


def _otherwise_slow(facts: Facts) -> bool:
    others = [code for code in SLOW_CAUSES if code != "slow-after-update"]
    return symptom(facts, *others) is not None or any(events(gpu) & HELD_BACK for gpu in gpus(facts))


def _full(gpu: Gpu) -> bool:
    """Nearly nothing free while the card works: a driver of Windows would have spilled by now."""
    total, free = known(gpu.memory_total_bytes), known(gpu.memory_free_bytes)
    at_work = (known(gpu.utilisation) or 0) > 0
    return bool(total) and free is not None and at_work and gpu.driver_model != "TCC" and 1 - free / (total or 1) >= FULL


def _found(facts: Facts, gpu: Gpu | None, *, certain: bool) -> Finding:
    wsl = facts.system.wsl is True
    steps = [Fix(text="smaller"), Fix(text="cap"), Fix(text="policy-wsl" if wsl else "policy")]
    used = (known(gpu.memory_total_bytes) or 0) - (known(gpu.memory_free_bytes) or 0) if gpu else None
    return RULE.found(
        *steps,
        Fix(text="watch"),
        severity=Severity.SLOW,
        certain=certain,
        system="WSL" if wsl else "Windows",
        driver=facts.driver.version,
        gpu=gpu.name if gpu else None,
        used_gib=gib(used),
        total_gib=gib(known(gpu.memory_total_bytes)) if gpu else None,
    )


RULE = Rule(
    code="AP510",
    name="sysmem-fallback",
    layer=Layer.APPLICATION,
    check=check,
    explains=("low-utilisation", "performance-falling", "memory-held-by-other", "dataloader-bottleneck"),
)
