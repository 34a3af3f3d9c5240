"""What the user wants started: a script, a module, or a launcher such as torchrun."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from flatout.base.errors import UsageError


def command_line(python: str, words: Sequence[str]) -> list[str]:
    """`train.py ARGS`, `-m package.module ARGS`, `python train.py` or `torchrun … train.py` as a full command."""
    first, *rest = words
    if first == "-m":
        if not rest:
            raise UsageError("error.module-missing")
        return [python, *words]
    if first.startswith("-"):
        raise UsageError("error.unknown-option", option=first)
    if os.path.exists(first):
        return [python, *words]
    if os.path.dirname(first) or first.endswith(".py"):
        raise UsageError("error.script-not-found", script=first)
    found = shutil.which(first)
    if found is None:
        raise UsageError("error.script-not-found", script=first)
    return [found, *rest]
