"""What the user wants started: a script, a module, or a launcher such as torchrun."""

from __future__ import annotations

import difflib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from flatout.base.errors import UsageError

SHELL = (".sh", ".bash")
ENDINGS = (".py", *SHELL)
PYTHON = re.compile(r"pythonw?(\d+(\.\d+)*)?(\.exe)?", re.I)


def command_line(python: str, words: Sequence[str], options: Sequence[str] = ()) -> list[str]:
    """`train.py ARGS`, `-m package.module ARGS`, `python train.py` or `torchrun … train.py` as a full command.

    `options` are flatout's own: one that does not exist may be a slip in one of them.
    """
    first, *rest = words
    if first == "-m":
        if not rest:
            raise UsageError("error.module-missing")
        return [python, *words]
    if first.startswith("-"):
        option = first.partition("=")[0]  # what is said of it is shown and kept: the value may be a password
        near = difflib.get_close_matches(option, options, n=1)
        if near:
            raise UsageError("error.unknown-option-near", option=option, near=near[0])
        raise UsageError("error.unknown-option", option=option)
    if rest and PYTHON.fullmatch(os.path.basename(first)) and os.path.dirname(first) and os.access(first, os.X_OK):
        return [*words]  # `.venv/bin/python train.py`: an interpreter, no script
    if os.path.exists(first):
        shell = shutil.which("bash") or shutil.which("sh") if first.endswith(SHELL) else None
        return [shell, *words] if shell is not None else [python, *words]
    if os.path.dirname(first) or first.endswith(".py"):
        raise UsageError("error.script-not-found", script=first)
    found = shutil.which(first)
    if found is None:
        raise UsageError("error.script-not-found", script=first)
    return [found, *rest]


def script_file(words: Sequence[str]) -> Path | None:
    """The file that trains, as far as the words tell: the script, the module's own, or the first one behind a launcher."""
    for position, word in enumerate(words):
        if word == "-m" and position + 1 < len(words):
            return _module_file(words[position + 1])
        path = Path(word)
        if path.suffix == ".py" and os.path.isfile(path):  # unlike Path's it is False for a word that is too long for a name
            return path
        if position == 0 and os.path.isfile(path / "__main__.py"):
            return path / "__main__.py"
    return None


def _module_file(name: str) -> Path | None:
    """Of a module below the working folder; one that is installed is nobody's script."""
    place = Path(*name.split("."))
    if not place.name:
        return None
    candidates = (place.with_name(f"{place.name}.py"), place / "__main__.py")
    return next((path for path in candidates if os.path.isfile(path)), None)


def as_typed(words: Sequence[str]) -> str:
    """What `flatout run` is given to run the same: a file, or a module with its -m; empty where neither is named."""
    for position, word in enumerate(words):
        if word == "-m":
            return " ".join(words[position : position + 2])
        if word.endswith(ENDINGS):
            return word
    return ""


def home(words: Sequence[str]) -> Path:
    """The folder of the script; modules and launchers without one belong to the working folder."""
    path = None if as_typed(words).startswith("-m ") else script_file(words)
    return path.parent if path is not None else Path()
