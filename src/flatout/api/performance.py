"""Data classes of a measured training, returned by the monitor and the analyzer.

Bytes, seconds, percent, watts and degrees Celsius. What could not be measured is `Missing` with its reason, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flatout.base.records import Missing
from flatout.base.words import Words, choose_language
from flatout.machine.run_look import GpuChange, MemoryGrowth

GIB = 2**30

NOT_ASKED, NOT_REPORTED = Missing("not-asked"), Missing("not-reported")


@dataclass(frozen=True)
class Spread:
    """Many looks at one figure."""

    mean: float
    low: float
    high: float
    looks: int


@dataclass
class PerformanceReport:
    """What `PerformanceMonitor` has seen from `start()` until now, or until `stop()`."""

    device: str | Missing  # the card's name
    device_index: int | Missing  # as nvidia-smi counts
    seconds: float
    steps: int
    samples: int
    samples_per_s: float | Missing  # from the end of the first step, which is warm-up, to the last; `paused` left out
    recent_samples_per_s: float | Missing  # of about the last second
    utilisation: Spread | Missing  # of the card, percent, as the driver tells it
    power_w: Spread | Missing
    temperature_c: Spread | Missing
    memory_total_bytes: int | Missing  # of the card
    memory_used_bytes: Spread | Missing  # on the card, by all programs
    allocated_bytes: int | Missing  # by torch in this process, now
    allocated_peak_bytes: int | Missing
    reserved_bytes: int | Missing  # with torch's cache
    growth: MemoryGrowth | Missing  # of what is left in use after a step
    held_back: dict[str, int] = field(default_factory=dict)  # reason -> looks at which it held the working card back
    change: GpuChange | Missing = NOT_ASKED  # the card before and after; known once stopped
    losses: list[tuple[int, float]] = field(default_factory=list)  # (step, loss), some of them
    loss_not_finite_from: int | Missing = NOT_REPORTED
    cache_clears: int = 0

    def __str__(self) -> str:
        return "\n".join(lines(self, Words(choose_language(None))))


def lines(report: PerformanceReport, words: Words) -> list[str]:
    """The report as people read it."""

    def why(missing: Missing) -> str:
        return words(f"missing.{missing.reason}")

    def spread(key: str, value: Spread | Missing, scale: float = 1.0) -> str:
        if isinstance(value, Missing):
            return words(f"monitor.{key}-missing", why=why(value))
        mean, low, high = (f"{part / scale:.1f}" for part in (value.mean, value.low, value.high))
        return words(f"monitor.{key}", mean=mean, low=low, high=high)

    rate = report.samples_per_s
    told = [
        words("monitor.device", name=report.device)
        if isinstance(report.device, str)
        else words("monitor.no-device", why=why(report.device)),
        words("monitor.work", steps=report.steps, samples=report.samples, seconds=f"{report.seconds:.1f}"),
        words("monitor.rate", rate=f"{rate:.1f}") if isinstance(rate, float) else words("monitor.rate-missing", why=why(rate)),
    ]
    if isinstance(report.device, str):
        told += [
            spread("utilisation", report.utilisation),
            spread("used", report.memory_used_bytes, GIB),
            spread("power", report.power_w),
            spread("temperature", report.temperature_c),
        ]
    if isinstance(report.allocated_peak_bytes, int):
        told.append(words("monitor.allocated", peak=f"{report.allocated_peak_bytes / GIB:.2f}"))
    change = report.change
    if isinstance(change, GpuChange) and isinstance(change.used_before_bytes, int) and isinstance(change.used_after_bytes, int):
        before, after = (f"{part / GIB:.2f}" for part in (change.used_before_bytes, change.used_after_bytes))
        told.append(words("monitor.change", before=before, after=after))
    return told
