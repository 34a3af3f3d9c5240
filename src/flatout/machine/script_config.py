"""What a training configuration says, in the shapes people use: flat, nested by `train:`, or with `dataloader_params`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from flatout.base.records import Missing, Struct
from flatout.knobs.config_keys import BY_NAME
from flatout.machine.config_tree import Path
from flatout.machine.machine_facts import ScriptLook

WORKERS = BY_NAME["num_workers"].names
PINNING = BY_NAME["pin_memory"].names
PRECISION = BY_NAME["use_amp"].names
DEVICES = (*BY_NAME["device_id"].names, "use_gpu")

# The loader that counts is the one that feeds the training.
EVALUATION = re.compile(r"val|test|eval|infer|predict|dev_|_dev", re.I)

TRUE, FALSE = ("true", "yes", "on"), ("false", "no", "off", "none", "")
HALF = re.compile(r"(bf|fp)?(16|8)(-mixed|-true)?|bfloat16|float16|half|auto", re.I)
FULL = re.compile(r"(fp|tf)?(32|64)(-true)?|float32|highest|high", re.I)

NOT_GIVEN = Missing("not-given")


class Leaf(Struct, frozen=True, kw_only=True):
    path: Path
    value: Any
    line: int | None


def read(value: Any, lines: dict[Path, int], path: str) -> ScriptLook | Missing:
    if not isinstance(value, dict):
        return Missing("not-a-configuration", path)
    leaves = [leaf for leaf in _leaves(value, (), lines, set()) if not any(EVALUATION.search(part) for part in leaf.path)]
    look = ScriptLook(path=path, workers=NOT_GIVEN, pin_memory=NOT_GIVEN, mixed_precision=NOT_GIVEN, device_strings=NOT_GIVEN)
    counts = [leaf for leaf in _named(leaves, WORKERS) if isinstance(leaf.value, int) and not isinstance(leaf.value, bool)]
    if counts:
        worst = min(counts, key=lambda leaf: leaf.value)
        look.workers = worst.value
        _note(look, "workers", worst)
    for name, keys in (("pin_memory", PINNING), ("mixed_precision", PRECISION)):
        answers = [(leaf, answer) for leaf in _named(leaves, keys) if (answer := truth(leaf.value)) is not None]
        if answers:
            leaf, answer = max(answers, key=lambda pair: pair[1])  # fp16: false beside bf16: true is mixed precision
            setattr(look, name, answer)
            _note(look, name, leaf)
    devices = [(leaf, text) for leaf in _named(leaves, DEVICES) if (text := _device(leaf))]
    if devices:
        look.device_strings = list(dict.fromkeys(text for _, text in devices))
        _note(look, "device_strings", devices[0][0])
    return look


def truth(value: Any) -> bool | None:
    """Whether a switch for reduced precision (or for anything) is on: booleans, "bf16", 16, "32-true", "no"."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in TRUE or text == "1" or HALF.fullmatch(text):
        return True
    return False if value is None or text in FALSE or text == "0" or FULL.fullmatch(text) else None


def lines_of_json(text: str) -> dict[Path, int]:
    """Line of the first appearance of each key: JSON's own reader keeps none."""
    found: dict[Path, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for match in re.finditer(r'"((?:[^"\\]|\\.)*)"\s*:', line):
            found.setdefault((match[1],), number)
    return found


def _leaves(value: Any, path: Path, lines: dict[Path, int], been: set[int]) -> Iterator[Leaf]:
    """Each container once: anchors can repeat one for ever."""
    if isinstance(value, dict | list):
        if id(value) not in been:
            been.add(id(value))
            for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                yield from _leaves(inner, (*path, str(key)), lines, been)
    elif path:
        yield Leaf(path=path, value=value, line=lines.get(path) or lines.get(path[-1:]))


def _named(leaves: list[Leaf], names: tuple[str, ...]) -> list[Leaf]:
    return [leaf for leaf in leaves if leaf.path[-1].lower().replace("-", "_") in names]


def _device(leaf: Leaf) -> str | None:
    if leaf.path[-1] == "use_gpu":
        return "cpu" if truth(leaf.value) is False else None
    if isinstance(leaf.value, int) and not isinstance(leaf.value, bool):
        return f"cuda:{leaf.value}" if leaf.value >= 0 else "cpu"
    text = str(leaf.value).strip()
    return text if re.fullmatch(r"(cuda|cpu|mps|xpu)(:\d+)?", text) else None


def _note(look: ScriptLook, name: str, leaf: Leaf) -> None:
    if leaf.line is not None:
        look.lines[name] = leaf.line
