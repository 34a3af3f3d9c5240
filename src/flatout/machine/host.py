"""Processor, memory and operating system: the only file that imports psutil."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil

from flatout.base.records import Missing, Struct
from flatout.base.secrets import hide
from flatout.machine.machine_facts import HostMemory, Processor, System
from flatout.machine.run_look import HostStrain

CGROUP = Path("/sys/fs/cgroup")
PROC = Path("/proc")
FAULTS_AT_ONCE = 64  # pages
SHARED_MEMORY = Path("/dev/shm")

T = TypeVar("T")


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


def busy_cores(seconds: float) -> float | Missing:
    """How many of the machine's cores are at work, whoever's work it is."""
    try:
        return float(psutil.cpu_percent(interval=seconds)) / 100 * (psutil.cpu_count(logical=True) or 1)
    except (OSError, RuntimeError, psutil.Error):
        return Missing("not-reported")


def memory() -> HostMemory:
    virtual = psutil.virtual_memory()
    return HostMemory(
        total_bytes=virtual.total, available_bytes=virtual.available, limit_bytes=memory_limit(CGROUP, virtual.total)
    )


def own_peak_bytes() -> int | Missing:
    """The most memory that this process has ever held: it only rises."""
    try:
        import resource
    except ImportError:  # Windows keeps the figure elsewhere
        peak = getattr(psutil.Process().memory_info(), "peak_wset", None)
        return Missing("not-reported") if peak is None else int(peak)
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def own_bytes() -> int:
    """What this process holds now."""
    return int(psutil.Process().memory_info().rss)


class Strain(Struct, frozen=True, kw_only=True):
    """Counters of the whole machine that only rise: two of them, subtracted, tell of the time between."""

    swapped_in_bytes: int | Missing
    swapped_out_bytes: int | Missing
    io_stalled_s: float | Missing  # some program waited for a disk


def strain(proc: Path = PROC, cgroup: Path = CGROUP) -> Strain:
    counters = dict(zip(words[::2], words[1::2], strict=False)) if (words := _words(proc / "vmstat")) else {}
    return Strain(
        swapped_in_bytes=_pages(counters.get("pswpin")),
        swapped_out_bytes=_pages(counters.get("pswpout")),
        io_stalled_s=_stalled(_words(cgroup / "io.pressure") or _words(proc / "pressure/io")),
    )


def strained(before: Strain, after: Strain) -> HostStrain:
    def between(name: str) -> float | Missing:
        first, last = getattr(before, name), getattr(after, name)
        return (
            Missing("not-reported")
            if isinstance(first, Missing) or isinstance(last, Missing)
            else max(0.0, float(last - first))
        )

    back, out = between("swapped_in_bytes"), between("swapped_out_bytes")
    return HostStrain(
        swapped_in_bytes=back if isinstance(back, Missing) else int(back),
        swapped_out_bytes=out if isinstance(out, Missing) else int(out),
        io_stalled_s=between("io_stalled_s"),
    )


class Counters(Struct, frozen=True, kw_only=True):
    """What the host tells at one moment; most of it only rises. Each is a plain value or the reason why it is not there."""

    cores: tuple[tuple[float, float], ...] | Missing  # of each: seconds at work, seconds in all
    memory: tuple[int, int] | Missing  # used, total
    swap: tuple[int, int] | Missing
    shared_memory: tuple[int, int] | Missing
    disk: tuple[int, int] | Missing  # bytes read, bytes written
    network: tuple[int, int] | Missing  # bytes received, bytes sent
    strain: Strain


def counters(proc: Path = PROC, shm: Path = SHARED_MEMORY) -> Counters:
    return Counters(
        cores=_told(_cores),
        memory=_told(_memory),
        swap=_told(_swap),
        shared_memory=_told(lambda: _room(shm)),
        disk=_told(_disk),
        network=_told(_network),
        strain=strain(proc),
    )


def _told(question: Callable[[], T]) -> T | Missing:
    try:
        return question()
    except (OSError, RuntimeError, ValueError, AttributeError, LookupError, NotImplementedError, psutil.Error) as error:
        # Containers, old kernels and psutil's own versions differ in what they lack.
        return Missing("not-reported", str(error)[:80])


def _cores() -> tuple[tuple[float, float], ...]:
    found = []
    for times in psutil.cpu_times(percpu=True):
        # What a guest used is in the user's time already.
        whole = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        found.append((whole - times.idle - getattr(times, "iowait", 0.0), whole))
    return tuple(found)


def _memory() -> tuple[int, int]:
    virtual = psutil.virtual_memory()
    return int(virtual.total - virtual.available), int(virtual.total)


def _swap() -> tuple[int, int]:
    swap = psutil.swap_memory()
    return int(swap.used), int(swap.total)


def _room(folder: Path) -> tuple[int, int]:
    usage = shutil.disk_usage(folder)
    return usage.used, usage.total


def _disk() -> tuple[int, int]:
    disk = psutil.disk_io_counters()
    if disk is None:
        raise LookupError("no disks")
    return int(disk.read_bytes), int(disk.write_bytes)


def _network() -> tuple[int, int]:
    """Without the loopback: what a training and its own server say to each other is no network."""
    cards = psutil.net_io_counters(pernic=True)
    real = [card for name, card in cards.items() if name != "lo" and not name.lower().startswith("loopback")]
    return sum(int(card.bytes_recv) for card in real), sum(int(card.bytes_sent) for card in real)


def file_system(path: Path) -> str | Missing:
    """The kind of file system that holds `path` (ext4, nfs4, cifs …); on Windows "remote" for a drive of another machine."""
    return _told(lambda: _file_system(path))


def _file_system(path: Path) -> str:
    here = path.resolve()
    around = [
        (len(Path(part.mountpoint).parts), part)
        for part in psutil.disk_partitions(all=True)
        if here.is_relative_to(part.mountpoint)
    ]
    if not around:
        raise LookupError(str(here))
    # Of several mounts on one point the last one is seen.
    part = max(enumerate(around), key=lambda entry: (entry[1][0], entry[0]))[1][1]
    return "remote" if "remote" in part.opts.split(",") else str(part.fstype).lower()


def is_alive(pid: int) -> bool:
    return bool(psutil.pid_exists(pid))


def command_line(pid: int) -> list[str] | Missing:
    return _told(lambda: list(psutil.Process(pid).cmdline()))


def _pages(count: str | None) -> int | Missing:
    if count is None or not count.isdigit():
        return Missing("not-reported")
    return int(count) * int(os.sysconf("SC_PAGE_SIZE"))


def _stalled(words: list[str]) -> float | Missing:
    """`some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`: microseconds."""
    total = next((word.removeprefix("total=") for word in words if word.startswith("total=")), "")
    return int(total) / 1e6 if total.isdigit() else Missing("not-reported")


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


def busy_s(pid: int) -> float:
    """Processor time of a process and all below it."""
    total = 0.0
    for one in family(pid):
        try:
            used = one.cpu_times()
            total += used.user + used.system
        except psutil.Error:
            continue
    return total


def moved(pid: int) -> int:
    """What a process and all below it have read, written and taken of memory so far, in units of no meaning.

    Memory that is taken for the first time shows by its faults, in so many at once: a few come by themselves.
    """
    total = 0
    for one in family(pid):
        try:
            told = one.io_counters() if hasattr(one, "io_counters") else None
            total += one.pid + (told.read_count + told.write_count if told is not None else 0)
            total += _faults(one.pid) // FAULTS_AT_ONCE
        except (OSError, psutil.Error):
            continue
    return total


def _faults(pid: int) -> int:
    """Linux alone tells them; elsewhere what it holds has to do."""
    if not PROC.is_dir():
        return int(psutil.Process(pid).memory_info().rss) >> 12
    return int((PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[7])


def family(pid: int) -> list[psutil.Process]:
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.Error:
        return []


def kill(processes: list[psutil.Process]) -> None:
    for one in processes:
        with contextlib.suppress(psutil.Error):
            one.kill()


def identity(pid: int) -> dict[str, Any] | Missing:
    """Who has this number now: when it started, its command line, its user."""
    try:
        one = psutil.Process(pid)
        with one.oneshot():
            words = one.cmdline() or [one.name()]
            return {"started": one.create_time(), "command": " ".join(hide(words)), "user": _user(one)}
    except psutil.AccessDenied:
        return Missing("not-permitted")
    except (psutil.Error, OSError):
        return Missing("no-such-process")


def end(pid: int, started: float, number: int) -> Missing | None:
    """Sends the signal, but never to another process that has got the same number meanwhile. None: it was sent."""
    try:
        one = psutil.Process(pid)
        if pid <= 1 or abs(one.create_time() - started) > 0.01:
            return Missing("no-such-process")
        one.send_signal(number)
    except (psutil.AccessDenied, PermissionError):
        return Missing("not-permitted")
    except (psutil.Error, OSError, ValueError):
        return Missing("no-such-process")
    return None


def _user(one: psutil.Process) -> str:
    try:
        return str(one.username())
    except (psutil.Error, OSError, KeyError):
        return ""
