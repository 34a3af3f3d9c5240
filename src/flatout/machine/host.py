"""Processor, memory and operating system: the one door to psutil."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

from flatout.base.records import Missing
from flatout.machine.model import HostMemory, Processor, System

CGROUP = Path("/sys/fs/cgroup")


def system() -> System:
    return System(name=platform.system(), release=platform.release(), architecture=platform.machine())


def processor() -> Processor:
    cores = psutil.cpu_count(logical=True) or os.cpu_count() or 1
    usable, reason = float(cores), "all"
    affinity = _affinity()
    if affinity is not None and affinity < usable:
        usable, reason = float(affinity), "affinity"
    quota = cpu_quota(CGROUP)
    if quota is not None and quota < usable:
        usable, reason = quota, "quota"
    return Processor(cores=cores, usable=usable, usable_reason=reason, model=_model())


def memory() -> HostMemory:
    virtual = psutil.virtual_memory()
    return HostMemory(
        total_bytes=virtual.total, available_bytes=virtual.available, limit_bytes=memory_limit(CGROUP, virtual.total)
    )


def _affinity() -> int | None:
    # macOS has no affinity: psutil leaves the method out there.
    get = getattr(psutil.Process(), "cpu_affinity", None)
    try:
        return len(get()) if get else None
    except (psutil.Error, OSError):
        return None


def cpu_quota(root: Path) -> float | None:
    """Cores that the container's scheduler quota allows (cgroup v2, then v1); None where there is no limit."""
    words = _words(root / "cpu.max")
    if len(words) == 2 and words[0] != "max":
        return int(words[0]) / int(words[1])
    quota, period = _words(root / "cpu/cpu.cfs_quota_us"), _words(root / "cpu/cpu.cfs_period_us")
    if quota and period and int(quota[0]) > 0:
        return int(quota[0]) / int(period[0])
    return None


def memory_limit(root: Path, total: int) -> int | Missing:
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        words = _words(root / name)
        if words and words[0] != "max":
            limit = int(words[0])
            # cgroup v1 writes "no limit" as a number near 2**63.
            return limit if limit < total else Missing("no-limit")
    return Missing("no-limit")


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError):
        return []


def _model() -> str | Missing:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or Missing("not-reported")
