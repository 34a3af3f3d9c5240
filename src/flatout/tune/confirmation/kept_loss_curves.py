"""Loss curves that were paid for, beside the journal: a search that is resumed does not train them again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flatout.base.errors import RecordError
from flatout.base.records import convert, dump
from flatout.base.secrets import hide
from flatout.measure.one_batch import Look, Training
from flatout.tune.search.questions_and_answers import Values

NAME = "curves.jsonl"
# What a line raises that is no longer as it was written: values of other kinds, infinite counts, endless levels.
DAMAGED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


class Curves:
    """One line each. Losing a line costs its training, no more: nothing here stops a search.

    Of one command: with another configuration it is another training, whatever knobs are on it.
    """

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self._path = folder / NAME
        self._command = hide(command)
        self._known: dict[str, Training] = {}
        with contextlib.suppress(OSError):
            for line in self._path.read_text("ascii", "replace").splitlines():
                with contextlib.suppress(*DAMAGED):
                    told = json.loads(line)
                    if told["command"] != self._command or "looks" not in told:  # an older version did not look so closely
                        continue
                    key = _key(told["knobs"], told["steps"], told["seed"], told.get("draws", 0))
                    self._known[key] = training_of(told)

    def find(self, knobs: Values, steps: int, seed: int, draws: int = 0) -> Training | None:
        return self._known.get(_key(knobs, steps, seed, draws))

    def keep(self, knobs: Values, steps: int, seed: int, training: Training, draws: int = 0) -> None:
        asked = {"command": self._command, "knobs": dict(knobs), "steps": steps, "seed": seed, "draws": draws}
        self._known[_key(knobs, steps, seed, draws)] = training
        line = json.dumps({**asked, **dump(training)})
        # On a line of its own, also after one that was cut short.
        with contextlib.suppress(OSError), self._path.open("a", encoding="ascii") as file:
            file.write(f"\n{line}\n")


def training_of(told: Mapping[str, Any]) -> Training:
    """As the agent tells it, or as it was kept. What cannot be understood is no step to compare."""
    losses, begun = [float(loss) for loss in told["losses"]], int(told.get("begun", 0))
    with contextlib.suppress(ValueError, TypeError, RecordError):
        looks = [convert(look, Look, NAME) if look else None for look in told.get("looks", ())]
        return Training(losses=losses, begun=begun, looks=looks)
    return Training(losses=losses, begun=begun)


def _key(knobs: Values, steps: int, seed: int, draws: int) -> str:
    return json.dumps([sorted(knobs.items()), steps, seed, draws])
