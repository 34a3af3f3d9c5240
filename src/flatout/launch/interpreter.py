"""Which Python runs the user's script."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from flatout.base.errors import UsageError
from flatout.base.records import Missing
from flatout.machine.machine_facts import Interpreter


def choose(asked: str | None, environ: Mapping[str, str]) -> tuple[str, str]:
    """(path, reason): `--python`, else the active environment's, else the one flatout itself runs under."""
    if asked is not None:
        found = shutil.which(asked)
        if found is None:
            raise UsageError("error.python-not-found", python=asked)
        return found, "asked"
    for variable, reason in (("VIRTUAL_ENV", "virtual-env"), ("CONDA_PREFIX", "conda")):
        prefix = environ.get(variable)
        if prefix and not _same(prefix, sys.prefix) and (found := _in_environment(Path(prefix))):
            # flatout lives elsewhere (pipx, uvx): the script belongs to the environment that the user activated.
            return found, reason
    return sys.executable, "own"


def _in_environment(prefix: Path) -> str | None:
    for name in ("bin/python", "Scripts/python.exe", "python.exe"):
        candidate = prefix / name
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    return None


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def describe(path: str) -> Interpreter:
    """The version is known only of our own; another's is told by the process that it runs."""
    if _same(path, sys.executable):
        return Interpreter(path=path, version=sys.version.split()[0])
    return Interpreter(path=path, version=Missing("not-asked"))
