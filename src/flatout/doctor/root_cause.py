"""From findings to one root cause: causes by layer, consequences explained away."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.doctor.model import LAYERS, Finding, Layer, LayerVerdict, Rule, Severity, Verdict
from flatout.machine.machine_facts import Facts

MOST_NOTES = 3


def judge(facts: Facts, rules: tuple[Rule, ...]) -> Verdict:
    findings, crashed = _apply(facts, rules)
    kept = without_consequences(findings, rules)
    causes = [finding for finding in kept if finding.severity is not Severity.NOTE]
    root = min(causes, key=_rank, default=None)
    shown = [root] if root else []
    shown += sorted((finding for finding in kept if finding is not root), key=_rank)[:MOST_NOTES]
    return Verdict(
        healthy=root is None,
        root_cause=root,
        findings=shown,
        layers={str(layer): _layer(layer, facts, root, shown, crashed) for layer in LAYERS},
        crashed=[rule.code for rule in crashed],
    )


def _apply(facts: Facts, rules: tuple[Rule, ...]) -> tuple[list[Finding], list[Rule]]:
    findings, crashed = [], []
    for rule in rules:
        try:
            finding = rule.check(facts)
        except Exception:  # noqa: BLE001 - a rule that fails is our fault: shown as ☠, never as a traceback
            crashed.append(rule)
            continue
        if finding is not None:
            findings.append(finding)
    return findings, crashed


def without_consequences(findings: list[Finding], rules: tuple[Rule, ...]) -> list[Finding]:
    """What is left when causes have explained the findings that only follow from them; a note explains nothing."""
    explains = {rule.name: rule.explains for rule in rules}
    here = {finding.name for finding in findings if finding.severity is not Severity.NOTE}
    explained = {name for cause in here for name in explains[cause] if name != cause}
    return [finding for finding in findings if finding.name not in explained]


def _rank(finding: Finding) -> tuple[int, bool, int, str]:
    """Faults before what is merely slow, the certain before the likely, then the lowest layer."""
    severity = list(Severity).index(finding.severity)
    return severity, not finding.certain, LAYERS.index(finding.layer), finding.code


def _layer(layer: Layer, facts: Facts, root: Finding | None, shown: list[Finding], crashed: list[Rule]) -> LayerVerdict:
    here = [finding for finding in shown if finding.layer is layer]
    codes = [finding.code for finding in here]
    if any(rule.layer is layer for rule in crashed) and not here:
        return LayerVerdict(status="crashed")
    if any(finding.severity is Severity.FAULT for finding in here):
        return LayerVerdict(status="fail", findings=codes)
    if root and root.severity is Severity.FAULT and LAYERS.index(root.layer) < LAYERS.index(layer):
        return LayerVerdict(status="blocked", blocked_by=root.code, findings=codes)
    if any(finding.severity is Severity.SLOW for finding in here):
        return LayerVerdict(status="warn", findings=codes)
    return LayerVerdict(status="ok" if _looked_at(layer, facts) else "unknown", findings=codes)


def _looked_at(layer: Layer, facts: Facts) -> bool:
    """Whether anything decisive is known of the layer: silence is not health."""
    if layer is Layer.HARDWARE:
        return not isinstance(facts.hardware.pci, Missing) or not isinstance(facts.driver.gpus, Missing)
    if layer is Layer.DRIVER:
        return not isinstance(facts.driver.version, Missing)
    if layer is Layer.CUDA:
        return not isinstance(facts.cuda.init_code, Missing) or facts.torch.available is True
    if layer is Layer.PYTORCH:
        return not isinstance(facts.torch.version, Missing)
    return facts.source == "probed" or bool(facts.application.environment)
