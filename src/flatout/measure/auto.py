"""What `run --auto` did in a run: what was tried, what is kept, and what it gave."""

from __future__ import annotations

from flatout.base.records import Missing, Struct, field

NOT_MEASURED = Missing("not-measured")


class AutoDecision(Struct, kw_only=True):
    """`tune-decision.<code>` in the catalogue of words, with its parameters."""

    knob: str
    value: str
    verdict: str
    code: str
    params: dict[str, str | int | float | bool] = field(default_factory=dict)
    ratio: float | Missing = NOT_MEASURED
    lower: float | Missing = NOT_MEASURED
    upper: float | Missing = NOT_MEASURED


class AutoTuning(Struct, kw_only=True):
    """`auto.<ending>` in the catalogue of words. The ratio is that of all that is kept to the plain script, side by side."""

    ending: str  # tuned, already-flat-out, nothing-shown; ended (before it was through), not-begun
    knobs: dict[str, str] = field(default_factory=dict)  # that are on from then on
    decisions: list[AutoDecision] = field(default_factory=list)
    gain: float | Missing = NOT_MEASURED
    lower: float | Missing = NOT_MEASURED
    upper: float | Missing = NOT_MEASURED
    baseline: float | Missing = NOT_MEASURED  # samples per second
    final: float | Missing = NOT_MEASURED
    seconds: float = 0.0
    segments: int = 0
