"""The outcome of each knob of a run, from the lines of the agent's journal."""

from __future__ import annotations

from typing import Any

from flatout.knobs.model import Came, KnobUse
from flatout.launch.settings import Settings

Line = dict[str, Any]

# A proof that fails by one of these says nothing against the knob: there was no occasion yet to see it.
TOO_EARLY = frozenset({"not-called-yet", "no-step-yet", "no-batch-yet", "no-second-epoch-yet"})


class Story:
    """One process's knobs, as its journal tells them from the first line to the last."""

    def __init__(self, lines: list[Line]) -> None:
        self.outcomes: dict[str, Line] = {}
        self.proofs: dict[str, Line] = {}
        self.numerics: dict[str, str] = {}
        self.taken_back: dict[str, Line] = {}
        for line in lines:
            self._read(line)

    def _read(self, line: Line) -> None:
        kind = line.get("kind")
        if kind == "knobs":
            told = line.get("outcomes") or {}
            self.outcomes.update(told)
            self.numerics.update(line.get("numerics") or {})
            for name in told:
                self.taken_back.pop(name, None)
                self.proofs.pop(name, None)
        elif kind == "proofs":
            self._prove(line.get("proofs") or {}, bool(line.get("at_the_end")))
        elif kind == "taken-back":
            self.taken_back.update(dict.fromkeys(line.get("knobs") or [], line))

    def _prove(self, proofs: dict[str, Line], at_the_end: bool) -> None:
        """What was seen at work stays so: at the end of the script it may have been taken down already."""
        for name, proof in proofs.items():
            before = self.proofs.get(name) or {}
            if not (at_the_end and before.get("status") == "applied" and proof.get("status") != "applied"):
                self.proofs[name] = proof


def uses(settings: Settings, journals: list[list[Line]]) -> list[KnobUse]:
    """In the order in which they were asked for. Of several processes the one that tells most speaks for all."""
    stories = [Story(lines) for lines in journals]
    story = max(stories, key=lambda s: (len(s.outcomes), len(s.proofs), len(s.taken_back)), default=Story([]))
    found = []
    for name, value in settings.values.items():
        what, code, details = _batch(settings, journals) if name == "batch_size" else came(name, story)
        numerics = story.numerics.get(name, "") if what in (Came.APPLIED, Came.UNPROVED) else ""
        source = settings.sources.get(name, "")
        found.append(KnobUse(name=name, value=value, source=source, came=what, code=code, details=details, numerics=numerics))
    return found


def _batch(settings: Settings, journals: list[list[Line]]) -> tuple[Came, str, dict[str, Any]]:
    """By the script's own argument, and seen in its loaders."""
    if settings.given:
        return Came.REFUSED, "batch-given-by-you", {}
    if not settings.arguments:
        return Came.REFUSED, "batch-is-the-scripts", {}
    loaders = [use for lines in journals for line in lines if line.get("kind") == "window" for use in line.get("loaders") or []]
    sizes = [use.get("batch_size") for use in loaders if isinstance(use.get("batch_size"), int)]
    return (Came.APPLIED, "", {"batch_size": sizes[-1]}) if sizes else (Came.UNPROVED, "no-batch-yet", {})


def came(name: str, story: Story) -> tuple[Came, str, dict[str, Any]]:
    """What came of it, by which code, and with which details."""
    outcome = story.outcomes.get(name)
    if outcome is None:
        return Came.REFUSED, "ended-before", {}
    if name in story.taken_back:
        line = story.taken_back[name]
        return Came.TAKEN_BACK, str(line.get("code") or ""), dict(line.get("details") or {})
    if outcome.get("status") != "applied":
        what = Came.ALREADY if outcome.get("status") == "already" else Came.REFUSED
        return what, _code(outcome), _details(outcome)
    return _proved(outcome, story.proofs.get(name))


def _proved(outcome: Line, proof: Line | None) -> tuple[Came, str, dict[str, Any]]:
    """What was put on says how (`capped`); what was seen since says whether."""
    if proof is None:
        return Came.UNPROVED, _code(outcome), _details(outcome)
    if proof.get("status") == "applied":
        return Came.APPLIED, _code(outcome), {**_details(outcome), **_details(proof)}
    if _code(proof) in TOO_EARLY:
        return Came.UNPROVED, _code(proof), _details(proof)
    return (Came.ALREADY if proof.get("status") == "already" else Came.REFUSED), _code(proof), _details(proof)


def _code(told: Line) -> str:
    return str(told.get("code") or "")


def _details(told: Line) -> dict[str, Any]:
    details = told.get("details")
    return dict(details) if isinstance(details, dict) else {}
