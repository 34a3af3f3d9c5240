"""Two readings of the host's counters as one sample: pure but for `HostLook`, which reads."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.machine import host
from flatout.machine.host import Counters
from flatout.machine.telemetry import HostSample

FIRST = Missing("first-look")

# A counter that rises by more a second was set anew, or belongs to another device than before.
FASTEST_BYTES_S = 1 << 42


class HostLook:
    def __init__(self) -> None:
        self._before: tuple[float, Counters] | None = None

    def look(self, now: float) -> HostSample:
        """`now` in seconds that never run backwards."""
        counters = host.counters()
        before, self._before = self._before, (now, counters)
        if before is None:
            return between(None, counters, 0.0)
        return between(before[1], counters, now - before[0])


def between(before: Counters | None, now: Counters, seconds: float) -> HostSample:
    cores = _cores(before.cores if before else FIRST, now.cores)
    disk = _rates(before.disk if before else FIRST, now.disk, seconds)
    network = _rates(before.network if before else FIRST, now.network, seconds)
    strain = before.strain if before else None
    memory, swap, shared = now.memory, now.swap, now.shared_memory
    stalled = _rate(strain.io_stalled_s if strain else FIRST, now.strain.io_stalled_s, seconds)
    return HostSample(
        cpu_percent=cores if isinstance(cores, Missing) else sum(cores) / len(cores),
        core_percent=cores,
        memory_used_bytes=memory if isinstance(memory, Missing) else memory[0],
        memory_total_bytes=memory if isinstance(memory, Missing) else memory[1],
        swap_used_bytes=swap if isinstance(swap, Missing) else swap[0],
        swap_total_bytes=swap if isinstance(swap, Missing) else swap[1],
        swap_in_bytes_s=_rate(strain.swapped_in_bytes if strain else FIRST, now.strain.swapped_in_bytes, seconds),
        swap_out_bytes_s=_rate(strain.swapped_out_bytes if strain else FIRST, now.strain.swapped_out_bytes, seconds),
        shm_used_bytes=shared if isinstance(shared, Missing) else shared[0],
        shm_total_bytes=shared if isinstance(shared, Missing) else shared[1],
        disk_read_bytes_s=disk[0],
        disk_written_bytes_s=disk[1],
        net_received_bytes_s=network[0],
        net_sent_bytes_s=network[1],
        io_stalled=stalled if isinstance(stalled, Missing) else min(1.0, stalled),
    )


def _cores(
    before: tuple[tuple[float, float], ...] | Missing, now: tuple[tuple[float, float], ...] | Missing
) -> tuple[float, ...] | Missing:
    if isinstance(now, Missing):
        return now
    if isinstance(before, Missing):
        return before
    if len(before) != len(now) or not now:
        return Missing("not-reported")  # a core was switched on or off
    found = []
    for (busy, whole), (busy_now, whole_now) in zip(before, now, strict=True):
        passed = whole_now - whole
        found.append(max(0.0, min(100.0, 100 * (busy_now - busy) / passed)) if passed > 0 else 0.0)
    return tuple(found)


def _rates(
    before: tuple[int, int] | Missing, now: tuple[int, int] | Missing, seconds: float
) -> tuple[float | Missing, float | Missing]:
    if isinstance(now, Missing):
        return now, now
    if isinstance(before, Missing):
        return before, before
    return _rate(before[0], now[0], seconds), _rate(before[1], now[1], seconds)


def _rate(before: float | Missing, now: float | Missing, seconds: float) -> float | Missing:
    if isinstance(now, Missing):
        return now
    if isinstance(before, Missing):
        return before
    if seconds <= 0:
        return FIRST
    rate = (now - before) / seconds
    return rate if 0 <= rate <= FASTEST_BYTES_S else Missing("implausible", f"{rate:g}")
