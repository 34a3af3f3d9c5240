"""AP509 memory-held-by-other: the card's memory is taken by other processes, or by one that has died."""

from __future__ import annotations

from flatout.doctor import shortage
from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import gib, gpus, in_container, known, symptom, system, windows_driver
from flatout.machine.machine_facts import Facts, Gpu, GpuProcess

# Desktops, browsers and their like hold less each.
DESKTOP_BYTES = 1 << 30

# Taken, and by nobody who is listed: more than any driver keeps for itself, and a share that a training would miss.
NOBODYS_BYTES, NOBODYS_SHARE = 2 << 30, 0.1

# A card with less than this free is not there for a new training.
NEARLY_FULL = 0.25


def check(facts: Facts) -> Finding | None:
    short, stuck = shortage.read(facts), symptom(facts, "memory-not-released")
    if short is not None and short.held_by_others:
        return _found(facts, _fullest(facts), taken=short.elsewhere)
    if stuck:
        return _found(facts, _fullest(facts), zombie=True)
    found = [finding for gpu in gpus(facts) if (finding := _held(facts, gpu, missed=short is not None))]
    return min(found, key=lambda finding: list(Severity).index(finding.severity), default=None)


def _held(facts: Facts, gpu: Gpu, *, missed: bool) -> Finding | None:
    """By nobody who is listed, or by somebody who leaves little: a fault where a program has missed it."""
    nobodys = _nobodys(facts, gpu)
    if nobodys:
        severity = Severity.FAULT if _free_share(gpu) < NEARLY_FULL and not _drawing(gpu) else Severity.NOTE
        return _found(facts, gpu, taken=nobodys, zombie=True, severity=severity, certain=False)
    holders = _holders(gpu)
    if not holders or _free_share(gpu) >= NEARLY_FULL:
        return None
    taken = sum(known(process.memory_bytes) or 0 for process in holders)
    return _found(facts, gpu, taken=taken, severity=Severity.FAULT if missed else Severity.NOTE, certain=not missed)


def _holders(gpu: Gpu) -> list[GpuProcess]:
    large = [item for item in known(gpu.processes) or [] if (known(item.memory_bytes) or 0) >= DESKTOP_BYTES]
    return sorted(large, key=lambda item: known(item.memory_bytes) or 0, reverse=True)


def _nobodys(facts: Facts, gpu: Gpu) -> int | None:
    """In use, with no process to show for it. Windows, WSL and containers never show them all."""
    total, free, listed = known(gpu.memory_total_bytes), known(gpu.memory_free_bytes), known(gpu.processes)
    if not total or free is None or listed is None or windows_driver(facts) or in_container(facts):
        return None
    if facts.source != "pasted" and (known(facts.system.wsl) is None or known(facts.system.container) is None):
        return None
    # MIG devices account for their own processes, and other vendors for none.
    if gpu.vendor != "nvidia" or gpu.mig_enabled is True or any(known(item.memory_bytes) is None for item in listed):
        return None
    rest = total - free - sum(known(process.memory_bytes) or 0 for process in listed)
    return rest if rest >= max(NOBODYS_BYTES, NOBODYS_SHARE * total) else None


def _drawing(gpu: Gpu) -> bool:
    """A card with a screen holds pictures that belong to no process."""
    return gpu.display_active is True


def _free_share(gpu: Gpu) -> float:
    total, free = known(gpu.memory_total_bytes), known(gpu.memory_free_bytes)
    return free / total if total and free is not None else 1.0


def _fullest(facts: Facts) -> Gpu | None:
    return min(gpus(facts), key=_free_share, default=None)


def _found(
    facts: Facts,
    gpu: Gpu | None,
    taken: float | None = None,
    *,
    zombie: bool = False,
    certain: bool = True,
    severity: Severity = Severity.FAULT,
) -> Finding:
    holders = _holders(gpu) if gpu else []
    return RULE.found(
        *_fix(facts, gpu, holders, zombie),
        severity=severity,
        certain=certain,
        gpu=gpu.name if gpu else "GPU",
        taken_gib=gib(taken),
        processes=[f"{known(item.name) or '?'} ({known(item.pid) or '?'})" for item in holders] or None,
    )


def _fix(facts: Facts, gpu: Gpu | None, holders: list[GpuProcess], zombie: bool) -> list[Fix]:
    windows = system(facts) == "Windows"
    steps = [Fix(command="nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv")]
    pid = next((known(item.pid) for item in holders if known(item.pid)), None)
    if pid is not None:
        steps = [Fix(text="end"), Fix(command=f"taskkill /PID {pid} /F" if windows else f"kill {pid}")]
    if zombie and not windows:
        index = gpu.index if gpu else 0
        steps += [Fix(text="hidden"), Fix(command="sudo fuser -v /dev/nvidia*")]
        steps += [Fix(text="reset"), Fix(command=f"sudo nvidia-smi --gpu-reset -i {index}")]
    if len(gpus(facts)) > 1:
        steps.append(Fix(text="other-card"))
    return steps


RULE = Rule(code="AP509", name="memory-held-by-other", layer=Layer.APPLICATION, check=check, explains=("out-of-memory",))
