"""Messages about a configuration: the table before, after and why; the comparison of the files; explored values."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.measure.parity import Verdict
from flatout.measure.statistics import Answer
from flatout.report.numbers import gibibytes, percent
from flatout.report.terminal import Group, RenderableType, Table, Text
from flatout.report.tune import rate, ratio
from flatout.tune.config.config_file import shown
from flatout.tune.config.measure import PLACEHOLDER
from flatout.tune.config.wishes import Change, ConfigOutcome, Explored, How, Reading, State, Verification

STYLES = {State.CHANGED: "green", State.INSERTED: "green", State.ALREADY: "", State.LEFT: "bright_black"}


def render(outcome: ConfigOutcome, words: Words) -> RenderableType:
    parts: list[RenderableType] = []
    if outcome.how is How.ESTIMATED:
        parts.append(Text(ground(outcome, words)))
    if outcome.changes:
        parts += [Text(words("config.title", source=outcome.source), style="bold"), table(outcome, words)]
    if outcome.how is How.ESTIMATED:
        parts.append(Text(words("config.estimated", source=outcome.source, placeholder=PLACEHOLDER), style="yellow"))
    else:
        parts.append(Text(verification(outcome.verification, words), style="bold"))
    if outcome.verification.unread:
        parts.append(Text(words("config.unread", keys=", ".join(outcome.verification.unread)), style="yellow"))
    if isinstance(outcome.target, str):
        changed = any(change.state in (State.CHANGED, State.INSERTED) for change in outcome.changes)
        parts.append(Text(words("config.written" if changed else "config.nothing-changed", target=outcome.target)))
    else:
        parts.append(Text(words("config.not-written")))
    return Group(*parts)


def ground(outcome: ConfigOutcome, words: Words) -> str:
    found = outcome.ground
    if found.source == "none":
        return words("config.ground-none", missing=words(f"missing.{found.missing}"))
    return words(
        f"config.ground-{found.source}",
        card=found.card,
        capability=found.capability or "?",
        memory=f"{found.memory_gib:g}" if found.memory_gib else "?",
        usable=f"{found.memory_usable_gib:g}" if found.memory_gib else "?",
        preset=found.preset,
    )


def table(outcome: ConfigOutcome, words: Words) -> Table:
    rows = Table(box=None, padding=(0, 1))
    for name in ("key", "before", "after", "how", "why"):
        rows.add_column(words(f"config.{name}"), overflow="fold", no_wrap=name == "how")
    for change in outcome.changes:
        left = change.state is State.LEFT
        cells = (
            change.path or change.key,
            words("config.not-there") if change.before is None else shown(change.before),
            "" if left else shown(change.after),
            "" if left else words(f"config.how-{change.how}"),
            why(change, words),
        )
        rows.add_row(*(Text(cell, style=STYLES[change.state]) for cell in cells))
    return rows


def why(change: Change, words: Words) -> str:
    return words(f"config-why.{change.code}", **change.params)


def verification(found: Verification, words: Words) -> str:
    if not found.done or found.comparison is None:
        return words(f"config.unverified-{found.code}", said=found.said or "…")
    if found.parity is not None and found.parity.verdict is not Verdict.PASS:
        return words("config.unverified-parity", detail=f"{found.parity.verdict}, {found.parity.code}")
    seen = found.comparison
    answer = Answer.UNKNOWN if isinstance(seen.lower, Missing) else seen.answer
    figures = {"old": rate(found.old_rate), "new": rate(found.new_rate)}
    bounds = {"ratio": ratio(seen.ratio), "lower": ratio(seen.lower), "upper": ratio(seen.upper)}
    return words(f"config.verified-{answer}", **figures, **bounds)


def explored(found: Explored, words: Words) -> RenderableType:
    rows = Table(box=None, padding=(0, 1))
    for name in ("value", "rate", "share", "memory"):
        rows.add_column(words(f"config.explore-{name}"), justify="left" if name == "value" else "right")
    now = next((one.rate for one in found.readings if one.current), Missing("not-measured"))
    for reading in found.readings:
        value = words("config.explore-now", value=reading.value) if reading.current else reading.value
        rows.add_row(Text(value), *(Text(cell) for cell in _cells(reading, now, found.memory_total, words)))
    return Group(Text(words("config.explore-title", name=found.path), style="bold"), rows)


def _cells(reading: Reading, now: float | Missing, total: int | Missing, words: Words) -> tuple[str, str, str]:
    if isinstance(reading.rate, Missing):
        return words("config.explore-failed", status=reading.status), "", ""
    low, high = rate(min(reading.rates)), rate(max(reading.rates))
    speed = words("config.explore-spread", rate=rate(reading.rate), low=low, high=high)
    share = "" if isinstance(now, Missing) else percent(reading.rate / now)
    if isinstance(reading.memory_peak, Missing):
        return speed, share, "–"
    peak = gibibytes(reading.memory_peak)
    if isinstance(total, Missing):
        return speed, share, peak
    return speed, share, words("config.explore-of-card", peak=peak, share=percent(reading.memory_peak / total))
