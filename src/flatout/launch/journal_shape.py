"""Checks that lines of a journal have the fields and types that the agent writes.

What a damaged disk, or a script, has changed is left out: a field where the rest can be told without it, else the line.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from _flatout_agent.wire import FIRST_PHASES, PHASES

Line = dict[str, Any]
Shape = Callable[[Any], bool]

LARGEST = 2**62  # nanoseconds, bytes and counts all stay below


def number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and -LARGEST < value < LARGEST


def count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < LARGEST


def text(value: Any) -> bool:
    return isinstance(value, str)


def several(shape: Shape) -> Shape:
    return lambda value: isinstance(value, list) and all(shape(part) for part in value)


def named(shape: Shape) -> Shape:
    return lambda value: isinstance(value, dict) and all(shape(part) for part in value.values())


def table(value: Any) -> bool:
    return isinstance(value, dict)


def rank(value: Any) -> bool:
    return value is None or (str(value).isdecimal() and len(str(value)) < 10)


def phases(value: Any) -> bool:
    return several(number)(value) and len(value) in (len(PHASES), len(FIRST_PHASES))


def pair(value: Any) -> bool:
    return several(number)(value) and len(value) == 2


def recurring(value: Any) -> bool:
    return several(count)(value) and len(value) == 4


def saves(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, dict) and count(value.get("bytes")) and count(value.get("largest")) and text(value.get("path"))


def warm(value: Any) -> bool:
    if value is None:
        return True
    whole = isinstance(value, dict) and number(value.get("samples")) and phases(value.get("phases"))
    return whole and number(value.get("script_outside", 0))


def outcome(value: Any) -> bool:
    return isinstance(value, dict) and (value.get("details") is None or table(value["details"]))


def torch(value: Any) -> bool:
    if value is None or value == {}:
        return True
    builds = isinstance(value, dict) and all(value.get(name) is None or text(value.get(name)) for name in ("cuda", "hip"))
    return builds and text(value.get("version")) and number(value.get("import_s")) and {"cuda", "hip"} <= value.keys()


def loader(value: Any) -> bool:
    if not isinstance(value, dict) or not number(value.get("wait")) or not count(value.get("batches")):
        return False
    return value.get("site") is None or text(value["site"])


COUNTS = (
    "steps",
    "samples",
    "batches",
    "beside",
    "unsized_batches",
    "validation_batches",
    "foreign_batches",
    "backwards",
    "turns",
)

# Kind -> (fields without which the line says nothing, the others whose shape is counted on).
SHAPES: dict[str, tuple[dict[str, Shape], dict[str, Shape]]] = {
    "process": ({"pid": count}, {"rank": rank, "torch": torch, "python": text}),
    "window": (
        {},
        {
            "phases": phases,
            **dict.fromkeys(COUNTS, count),
            **dict.fromkeys(("t", "script_outside", "put_on", "gc"), number),
            "copy_sampled": pair,
            "loaders": several(loader),
            "warm": warm,
            "recurring": named(recurring),
            "saves": saves,
        },
    ),
    "knobs": ({}, {"outcomes": named(outcome), "numerics": named(text)}),
    "proofs": ({}, {"proofs": named(outcome)}),
    "taken-back": ({}, {"knobs": several(text), "details": table}),
}


def well_formed(lines: list[Line]) -> list[Line]:
    return [sound for line in lines if (sound := _sound(line)) is not None]


def _sound(line: Line) -> Line | None:
    wanted, others = SHAPES.get(str(line.get("kind")), ({}, {}))
    if any(name not in line or not shape(line[name]) for name, shape in wanted.items()):
        return None
    return {name: value for name, value in line.items() if name not in others or others[name](value)}
