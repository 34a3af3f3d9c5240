"""Loss curves that were paid for, beside the journal: a search that is resumed does not train them again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flatout.base.errors import RecordError
from flatout.base.records import convert, dump
from flatout.measure.one_batch import FirstStep, Training
from flatout.tune.model import Values

NAME = "curves.jsonl"


class Curves:
    """One line each. Losing a line costs its training, no more: nothing here stops a search.

    Of one command: with another configuration it is another training, whatever knobs are on it.
    """

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self._path = folder / NAME
        self._command = list(command)
        self._known: dict[str, Training] = {}
        with contextlib.suppress(OSError):
            for line in self._path.read_text("ascii", "replace").splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    told = json.loads(line)
                    if told["command"] != self._command:
                        continue
                    key = _key(told["knobs"], told["steps"], told["seed"], told.get("draws", 0))
                    self._known[key] = training_of(told)

    def find(self, knobs: Values, steps: int, seed: int, draws: int = 0) -> Training | None:
        return self._known.get(_key(knobs, steps, seed, draws))

    def keep(self, knobs: Values, steps: int, seed: int, training: Training, draws: int = 0) -> None:
        asked = {"command": self._command, "knobs": dict(knobs), "steps": steps, "seed": seed, "draws": draws}
        first = dump(training.first) if training.first is not None else None
        line = json.dumps({**asked, "losses": training.losses, "first": first})
        # On a line of its own, also after one that was cut short.
        with contextlib.suppress(OSError), self._path.open("a", encoding="ascii") as file:
            file.write(f"\n{line}\n")


def training_of(told: Mapping[str, Any]) -> Training:
    """As the agent tells it, or as it was kept. A number that is none is no step to compare."""
    losses, first = [float(loss) for loss in told["losses"]], told.get("first")
    with contextlib.suppress(ValueError, TypeError, RecordError):
        return Training(losses=losses, first=convert(first, FirstStep, NAME) if first else None)
    return Training(losses=losses)


def _key(knobs: Values, steps: int, seed: int, draws: int) -> str:
    return json.dumps([sorted(knobs.items()), steps, seed, draws])
