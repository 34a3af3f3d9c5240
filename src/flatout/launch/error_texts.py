"""Error messages from the agent without secrets: they may repeat an address or a key that the script was given."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _flatout_agent import wire
from flatout.base.secret_forms import cut_scrubbed, scrubbed

# Under these names, at any depth. All else are numbers, names and codes of our own; some of them may be somebody's password.
SAID = ("text", "message", "error")
_MARKS = tuple(f'"{name}":'.encode("ascii") for name in SAID)
_FILES = (wire.journal_name("*"), "result-*.json")


def errors_scrubbed(told: Any, hidden: Sequence[str]) -> Any:
    """A line of a journal, or an answer, without these values."""
    if isinstance(told, dict):
        return {
            name: cut_scrubbed(value, hidden) if name in SAID and isinstance(value, str) else errors_scrubbed(value, hidden)
            for name, value in told.items()
        }
    return [errors_scrubbed(part, hidden) for part in told] if isinstance(told, list) else told


def scrub_files(folder: Path, hidden: Sequence[str]) -> None:
    """What the processes of a run that has ended wrote into the folder of its records."""
    for path in [path for name in _FILES for path in folder.glob(name)] if hidden else ():
        with contextlib.suppress(OSError):  # the disk is full: the summary is without them in any case
            _scrub(path, hidden)


def _scrub(path: Path, hidden: Sequence[str]) -> None:
    """Line by line: a journal may be larger than the memory. Nearly always nothing is found, and nothing written."""
    with path.open("rb") as source:
        if all(_line_scrubbed(line, hidden) == line for line in source):
            return
        source.seek(0)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        try:
            with temporary.open("xb") as target:
                target.writelines(_line_scrubbed(line, hidden) for line in source)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _line_scrubbed(line: bytes, hidden: Sequence[str]) -> bytes:
    if not any(mark in line for mark in _MARKS):
        return line
    try:
        told = json.loads(line)
        without = errors_scrubbed(told, hidden)
    except (ValueError, RecursionError):  # cut short by a crash
        return scrubbed(line.decode("ascii", "replace"), hidden).encode("ascii", "replace")
    return line if without == told else json.dumps(without, separators=(",", ":")).encode("ascii") + b"\n"
