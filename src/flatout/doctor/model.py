"""What a rule is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import ClassVar

from flatout.base.records import Missing, Record, Struct, field
from flatout.machine.machine_facts import Facts

Plain = str | int | float | bool
Evidence = dict[str, Plain | list[Plain]]


class Layer(StrEnum):
    """In the order in which a fault blocks what is above it."""

    HARDWARE = "hardware"
    DRIVER = "driver"
    CUDA = "cuda"
    PYTORCH = "pytorch"
    APPLICATION = "application"


LAYERS = tuple(Layer)


class Severity(StrEnum):
    FAULT = "fault"  # the GPU is not used, or training fails
    SLOW = "slow"  # it works, slower than it could
    NOTE = "note"  # worth knowing; never makes a machine unhealthy


class Fix(Struct, kw_only=True):
    """One step of a repair: a command to type, or a sentence of the rule's page (`[fix]` there), with its values."""

    command: str | None = None
    text: str | None = None  # key
    params: dict[str, Plain] = field(default_factory=dict)


class Finding(Struct, kw_only=True):
    code: str
    name: str
    layer: Layer
    severity: Severity
    evidence: Evidence  # the numbers; also the values of the page's `says` sentence
    fix: list[Fix]
    certain: bool = True  # False: the facts fit, but a decisive one is missing
    knobs: list[str] = field(default_factory=list)  # that would cure it, by their names in the catalogue


class Rule(Struct, kw_only=True, frozen=True):
    """A pure judgement: facts in, a finding or nothing out."""

    code: str  # HW1xx, DR2xx, CU3xx, PT4xx, AP5xx
    name: str  # the defect, in lower case with hyphens; reads well after "this machine has:"
    layer: Layer
    check: Callable[[Facts], Finding | None]
    explains: tuple[str, ...] = ()  # names of findings that are only consequences where this one holds
    knobs: tuple[str, ...] = ()  # that would cure it: names of `knobs/catalogue.py`

    def found(self, *fix: Fix, severity: Severity = Severity.FAULT, certain: bool = True, **evidence: object) -> Finding:
        """A finding of this rule; evidence that is Missing or None is left out."""
        known = {name: value for name, value in evidence.items() if value is not None and not isinstance(value, Missing)}
        return Finding(
            code=self.code,
            name=self.name,
            layer=self.layer,
            severity=severity,
            evidence=known,  # type: ignore[arg-type]
            fix=list(fix),
            certain=certain,
            knobs=list(self.knobs),
        )


class LayerVerdict(Struct, kw_only=True):
    status: str  # ok, warn, fail, blocked, unknown, crashed
    blocked_by: str | None = None  # code of the root cause
    findings: list[str] = field(default_factory=list)  # codes


class Verdict(Record):
    """What `doctor` says: the JSON contract is this record's fields."""

    KIND: ClassVar[str] = "verdict"

    healthy: bool
    root_cause: Finding | None
    findings: list[Finding]
    layers: dict[str, LayerVerdict]
    crashed: list[str] = field(default_factory=list)  # rules that failed themselves: a fault of ours
