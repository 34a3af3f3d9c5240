"""Advice from a monitor's figures, by the same rules as after `flatout run`. Pure."""

from __future__ import annotations

import math
from statistics import median

from flatout.api.performance import PerformanceReport, Spread
from flatout.base.records import Missing, Struct, field
from flatout.base.words import Words
from flatout.doctor import page, registry, root_cause
from flatout.doctor.model import Finding
from flatout.machine.machine_facts import Application, Facts, Symptom
from flatout.machine.run_look import DeviceLook, DeviceMemory, GpuChange, Losses, MemoryGrowth, RunLook
from flatout.measure.trend import theil_sen

RULES = ("AP512", "AP513", "AP515", "AP516", "AP524", "AP526")

FEWEST_STEPS = 20  # below it everything is warm-up
FEWEST_LOOKS = 5
BUSY_PERCENT = 70.0  # as the rule AP516 has it

# A loop that has become a tenth slower, by a trend that chance gives once in thirty thousand.
SLOWER = 0.9
SIGNIFICANCE = 4.0

FULL = 0.9  # of the card

STEPS_SHOWN = 2


class Seen(Struct, kw_only=True):
    """What the monitor knows beside its report."""

    steps: int = 0
    seconds: float = 0.0
    rates: list[tuple[float, float]] = field(default_factory=list)  # (step, samples a second)
    losses: Losses = field(default_factory=Losses)
    memory: DeviceMemory | None = None
    gpus: list[GpuChange] = field(default_factory=list)
    device: DeviceLook = field(default_factory=DeviceLook)


def sentences(report: PerformanceReport, seen: Seen, words: Words) -> list[str]:
    told = [_said(finding, words) for finding in findings(report, seen)]
    peak, total = report.allocated_peak_bytes, report.memory_total_bytes
    if isinstance(peak, int) and isinstance(total, int) and total and peak > FULL * total:
        told.append(words("monitor.memory-full", share=round(100 * peak / total)))
    if report.cache_clears:
        told.append(words("monitor.cache-cleared", count=report.cache_clears))
    return told


def findings(report: PerformanceReport, seen: Seen) -> list[Finding]:
    rules = registry.all_rules()
    facts = _facts(report, seen)
    found = [rule.check(facts) for rule in rules if rule.code in RULES]
    return root_cause.without_consequences([finding for finding in found if finding is not None], rules)


def losses_of(pairs: list[tuple[int, float]]) -> Losses:
    """As a finished run tells them: numbers apart from what is none, and from where on none is one."""
    finite = [pair for pair in pairs if math.isfinite(pair[1])]
    last = finite[-1][0] if finite else -1
    broken = [step for step, value in pairs if not math.isfinite(value) and step > last]
    return Losses(
        points=finite,
        not_finite=len(pairs) - len(finite),
        not_finite_from=broken[0] if broken else Missing("not-reported"),
    )


def _facts(report: PerformanceReport, seen: Seen) -> Facts:
    growth = report.growth if isinstance(report.growth, MemoryGrowth) else None
    look = RunLook(
        steps=seen.steps,
        wall_s=seen.seconds,
        training_s=seen.seconds,
        device=DeviceLook(memory=seen.memory, growth=growth, regime=seen.device.regime),
        losses=seen.losses,
        gpus=seen.gpus,
    )
    return Facts(source="run", application=Application(run=look), symptoms=_symptoms(report, seen))


def _symptoms(report: PerformanceReport, seen: Seen) -> list[Symptom]:
    """What people would have told the doctor in words, here measured."""
    if seen.steps < FEWEST_STEPS:
        return []
    told = []
    busy = report.utilisation
    if isinstance(busy, Spread) and busy.looks >= FEWEST_LOOKS and busy.mean < BUSY_PERCENT:
        told.append(Symptom(code="low-utilisation", params={"percent": round(busy.mean, 1)}))
    if slower(seen.rates):
        told.append(Symptom(code="slower-over-time"))
    return told


def slower(rates: list[tuple[float, float]]) -> bool:
    trend = theil_sen(rates)
    if trend is None or trend.significance > -SIGNIFICANCE:
        return False
    third = max(1, len(rates) // 3)
    values = [rate for _, rate in rates]
    return median(values[-third:]) < SLOWER * median(values[:third])


def _said(finding: Finding, words: Words) -> str:
    sheet = page.read(finding.code, words.language)
    steps = [sheet.step(fix) for fix in finding.fix[:STEPS_SHOWN]]
    return " ".join([f"{finding.code}: {sheet.sentence(dict(finding.evidence))}", *steps])
