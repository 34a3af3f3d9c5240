"""AP510 sysmem-fallback: on Windows the driver spills into main memory instead of running out: slow instead of an error."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import HELD_BACK, SLOW_CAUSES, events, gib, gpus, known, symptom, windows_driver
from flatout.machine.machine_facts import Facts, Gpu
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
    held = _held_by_run(facts)
    if held is not None:
        used, total = held
        return _found(facts, None, held, certain=used > total)
    full = next((gpu for gpu in gpus(facts) if _full(gpu)), None)
    if full:
        total = known(full.memory_total_bytes) or 0
        return _found(facts, full.name, (total - (known(full.memory_free_bytes) or 0), total), certain=False)
    return _found(facts, None, certain=False) if slower and not _otherwise_slow(facts) else None


def _held_by_run(facts: Facts) -> tuple[int, int] | None:
    """What a run's allocator held at most, and the card: more than there is lies elsewhere."""
    memory = facts.application.run.device.memory
    used = known(memory.peak_reserved_bytes) if memory is not None else None
    total = known(memory.total_bytes) if memory is not None else None
    return (used, total) if used and total and used >= FULL * total else None


def _otherwise_slow(facts: Facts) -> bool:
    others = [code for code in SLOW_CAUSES if code != "slow-after-update"]
    return symptom(facts, *others) is not None or any(events(gpu) & HELD_BACK for gpu in gpus(facts))


def _full(gpu: Gpu) -> bool:
    """Nearly nothing free while the card works: a driver of Windows would have spilled by now."""
    total, free = known(gpu.memory_total_bytes), known(gpu.memory_free_bytes)
    at_work = (known(gpu.utilisation) or 0) > 0
    return bool(total) and free is not None and at_work and gpu.driver_model != "TCC" and 1 - free / (total or 1) >= FULL


def _found(facts: Facts, gpu: str | Missing | None, held: tuple[int, int] | None = None, *, certain: bool) -> Finding:
    wsl = facts.system.wsl is True
    steps = [Fix(text="smaller"), Fix(text="cap"), Fix(text="policy-wsl" if wsl else "policy")]
    used, total = held or (None, None)
    return RULE.found(
        *steps,
        Fix(text="watch"),
        severity=Severity.SLOW,
        certain=certain,
        system="WSL" if wsl else "Windows",
        driver=facts.driver.version,
        gpu=gpu,
        used_gib=gib(used),
        total_gib=gib(total),
    )


RULE = Rule(
    code="AP510",
    name="sysmem-fallback",
    layer=Layer.APPLICATION,
    check=check,
    explains=("low-utilisation", "performance-falling", "memory-held-by-other", "dataloader-bottleneck"),
)
