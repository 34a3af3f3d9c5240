"""A verdict as text (five lines, one root cause, its repair) and as the JSON of the contract."""

from __future__ import annotations

from typing import Any

from flatout.base.words import Words
from flatout.doctor import page
from flatout.doctor.model import LAYERS, Finding, Fix, Layer, LayerVerdict, Severity, Verdict
from flatout.machine.machine_facts import Facts
from flatout.report import layers
from flatout.report.terminal import Group, RenderableType, Table, Text, hanging

# (mark, colour) of a layer; ☠ is our own check that crashed.
MARKS = {
    "ok": ("✓", "green"),
    "warn": ("!", "yellow"),
    "fail": ("✗", "red"),
    "blocked": ("·", "bright_black"),
    "unknown": ("?", "bright_black"),
    "crashed": ("☠", "magenta"),
}


def render(verdict: Verdict, facts: Facts, words: Words, verbose: bool) -> RenderableType:
    parts: list[RenderableType] = [_layers(verdict, facts, words)]
    if verbose:
        parts += [Text(), layers.details(facts, words)]
    parts.append(Text())
    if verdict.root_cause is None:
        parts.append(_healthy(verdict, facts, words))
    else:
        parts += _cause(verdict.root_cause, words)
    parts += _notes(verdict, words, verbose)
    if verdict.crashed:
        parts.append(Text(words("doctor.crashed", codes=", ".join(verdict.crashed)), style="magenta"))
    return Group(*parts)


def _layers(verdict: Verdict, facts: Facts, words: Words) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column()
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for layer in LAYERS:
        state = verdict.layers[layer]
        mark, colour = MARKS[state.status]
        table.add_row(Text(mark, style=colour), words(f"layer.{layer}"), _line(layer, state, facts, words))
    return table


def _line(layer: Layer, state: LayerVerdict, facts: Facts, words: Words) -> str:
    text = layers.one_line(layer, facts, words)
    if state.status == "blocked" and state.blocked_by:
        blocked = words("doctor.blocked-by", code=state.blocked_by)
        return f"{text} ({blocked})" if text else blocked
    return text or words("doctor.unknown")


def _healthy(verdict: Verdict, facts: Facts, words: Words) -> Text:
    unknown = [words(f"layer.{name}") for name, state in verdict.layers.items() if state.status in ("unknown", "crashed")]
    if not unknown:
        return Text(words("doctor.healthy"), style="bold green")
    return Text(words("doctor.nothing-found", layers=words("doctor.and").join(unknown)), style="bold")


def _cause(finding: Finding, words: Words) -> list[RenderableType]:
    sheet = page.read(finding.code, words.language)
    heading = Text(words("doctor.root-cause" if finding.certain else "doctor.likely-cause"), style="bold red")
    heading.append(f" {finding.code} {finding.name}", style="bold")
    lines: list[RenderableType] = [heading, hanging("  ", sheet.sentence(dict(finding.evidence))), Text()]
    lines.append(Text(words("doctor.repair"), style="bold"))
    lines += [_step(f"  {number}. ", fix, sheet) for number, fix in enumerate(finding.fix, 1)]
    lines.append(Text(words("doctor.more", code=finding.code), style="bright_black"))
    return lines


def _step(mark: str, fix: Fix, sheet: page.Page) -> RenderableType:
    if fix.command is None:
        return hanging(mark, sheet.step(fix))
    # Never broken by us: it is copied whole, and the terminal wraps what it must.
    return Text(f"{mark}{fix.command}", style="cyan", no_wrap=True, overflow="ignore")


def _notes(verdict: Verdict, words: Words, verbose: bool) -> list[RenderableType]:
    others = [finding for finding in verdict.findings if finding is not verdict.root_cause]
    if not others:
        return []
    lines: list[RenderableType] = [Text(), Text(words("doctor.also"), style="bold")]
    for finding in others:
        sheet = page.read(finding.code, words.language)
        colour = "yellow" if finding.severity is not Severity.NOTE else ""
        lines.append(hanging("  ", f"{finding.code} {finding.name}: {sheet.sentence(dict(finding.evidence))}", colour))
        if verbose:
            lines += [_step("     - ", fix, sheet) for fix in finding.fix]
    return lines


def to_json(verdict: Verdict) -> dict[str, Any]:
    """The contract of `doctor --json`: stable names and numbers; sentences are English, beside their keys."""
    return {
        "kind": verdict.KIND,
        "version": verdict.VERSION,
        "healthy": verdict.healthy,
        "root_cause": finding_json(verdict.root_cause) if verdict.root_cause else None,
        "findings": [finding_json(finding) for finding in verdict.findings],
        "layers": {
            name: {
                "status": "unknown" if state.status == "crashed" else state.status,
                **({"blocked_by": state.blocked_by} if state.blocked_by else {}),
                "findings": state.findings,
            }
            for name, state in verdict.layers.items()
        },
        "crashed_checks": verdict.crashed,
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    sheet = page.read(finding.code, "en")
    return {
        "code": finding.code,
        "name": finding.name,
        "layer": str(finding.layer),
        "severity": str(finding.severity),
        "certain": finding.certain,
        "evidence": finding.evidence,
        "fix": [{"command": fix.command} if fix.command else {"text": sheet.step(fix), "key": fix.text} for fix in finding.fix],
        **({"knobs": finding.knobs} if finding.knobs else {}),
    }
