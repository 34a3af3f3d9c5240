"""Loss curves that were paid for, beside the journal: a search that is resumed does not train them again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

from flatout.tune.model import Values

NAME = "curves.jsonl"


class Curves:
    """One line each. Losing a line costs its training, no more: nothing here stops a search.

    Of one command: with another configuration it is another training, whatever knobs are on it.
    """

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self._path = folder / NAME
        self._command = list(command)
        self._known: dict[str, list[float]] = {}
        with contextlib.suppress(OSError):
            for line in self._path.read_text("ascii", "replace").splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    told = json.loads(line)
                    if told["command"] != self._command:
                        continue
                    self._known[_key(told["knobs"], told["steps"], told["seed"])] = [float(loss) for loss in told["losses"]]

    def find(self, knobs: Values, steps: int, seed: int) -> list[float] | None:
        return self._known.get(_key(knobs, steps, seed))

    def keep(self, knobs: Values, steps: int, seed: int, losses: list[float]) -> None:
        line = json.dumps({"command": self._command, "knobs": dict(knobs), "steps": steps, "seed": seed, "losses": losses})
        # On a line of its own, also after one that was cut short.
        with contextlib.suppress(OSError), self._path.open("a", encoding="ascii") as file:
            file.write(f"\n{line}\n")


def _key(knobs: Values, steps: int, seed: int) -> str:
    return json.dumps([sorted(knobs.items()), steps, seed])
