"""What a run's table says of its knobs: one line each, with the proof or the reason."""

from __future__ import annotations

import string
from typing import Any

from flatout.base.words import Words
from flatout.knobs.model import Came, KnobUse
from flatout.report import numbers, run_workers
from flatout.report.terminal import RenderableType, Table, Text

COLOURS = {
    Came.APPLIED: "green",
    Came.UNPROVED: "cyan",
    Came.ALREADY: "bright_black",
    Came.REFUSED: "yellow",
    Came.TAKEN_BACK: "yellow",
}

# Proofs that have a fuller sentence where this was seen too.
FULLER = {
    "precision": [("scale", "precision-scaled")],
    "compile": [("replays", "compile-recorded"), ("cuda_graphs", "compile-graphs")],
}


def lines(knobs: list[KnobUse], words: Words) -> list[RenderableType]:
    if not knobs:
        return []
    table = Table(box=None, padding=(0, 1), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    together: dict[str, list[str]] = {}  # taken back at once, for one reason
    for use in knobs:
        name, said = f"{use.name}={use.value}", sentence(use, words)
        if use.came is Came.TAKEN_BACK:
            together.setdefault(said, []).append(name)
        else:
            table.add_row(name, Text(said, style=COLOURS[use.came]))
    for said, names in together.items():
        table.add_row("\n".join(names), Text(said, style=COLOURS[Came.TAKEN_BACK]))
    return [Text(words("knobs.title"), style="bold"), table]


def sentence(use: KnobUse, words: Words) -> str:
    """Applied with its proof, put on without one, not applied and why, already so in the script, taken back and why."""
    why = reason(use, words)
    if use.came is Came.APPLIED:
        parts = [proof(use, words), *([why] if why else [])]
        parts += run_workers.told(use.details, words) if use.name == "workers" else []
        parts += [words(f"numerics.{use.numerics}")] if words.has(f"numerics.{use.numerics}") else []
        return words("knobs.applied", proof=words("run.semicolon").join(parts))
    if use.came is Came.UNPROVED:
        return words("knobs.unproved", why=why or words("outcome.ended-too-early"))
    return words(f"knobs.{use.came}", why=why)


def reason(use: KnobUse, words: Words) -> str:
    """The sentence of a code. One that this flatout does not know is shown as it is: an agent may be newer."""
    key = f"outcome.{use.code}"
    return filled(words, key, use.details) if words.has(key) else use.code


def proof(use: KnobUse, words: Words) -> str:
    key = next((fuller for seen, fuller in FULLER.get(use.name, []) if seen in use.details), use.name)
    return filled(words, f"proof.{key}", _counted(use.details))


def _counted(details: dict[str, Any]) -> dict[str, Any]:
    """Workers are counted alive, or as they were when the epoch ended."""
    seen = details.get("workers_alive", details.get("workers_seen"))
    return {**details, "workers_seen": seen} if seen is not None else details


def filled(words: Words, key: str, details: dict[str, Any]) -> str:
    """A detail that the agent did not give is a question mark, never a fault of the report."""
    wanted = {name for _, name, _, _ in string.Formatter().parse(words(key)) if name}
    given = {name: shown(name, details[name], words) for name in wanted & details.keys()}
    return words(key, **{**dict.fromkeys(wanted, "?"), **given})


def shown(name: str, value: Any, words: Words) -> str:
    if name == "capability" and isinstance(value, list):
        return ".".join(map(str, value))
    if name == "limit" and words.has(f"room-for-workers.{value}"):
        return words(f"room-for-workers.{value}")
    if name == "ratio" and isinstance(value, int | float):
        return numbers.percent(value)
    if isinstance(value, list):
        return words("run.comma").join(map(str, value))
    if isinstance(value, float):
        return numbers.count(value)
    return str(value)
