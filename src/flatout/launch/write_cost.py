"""How much longer writing a checkpoint takes in a trial than in the user's run, because files are redirected and copied.

Measured apart, with as many bytes as the script's checkpoint has: inside what holds the trials, and on the file system that the
script writes to. There the file has no name, so that nothing of the user's changes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from flatout.launch import writing_time
from flatout.launch.protection import Kind, Protection

LEAST, MOST = 8 << 20, 256 << 20  # bytes: smaller ones cost nothing, larger ones cost in proportion
LONGEST_S = 60.0


def slower_a_byte(protection: Protection, path: str, size: int, environ: Mapping[str, str]) -> float:
    """Seconds, of a file of this size written to this path; 0 where it cannot be measured."""
    if size < LEAST or protection.kind == Kind.NONE:
        return 0.0
    size = min(size, MOST)
    try:
        inside = _inside(protection, path, size, environ)
        outside = writing_time.seconds(_nameless(_existing(Path(path).absolute().parent)), size)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0.0
    return (inside - outside) / size


def _inside(protection: Protection, path: str, size: int, environ: Mapping[str, str]) -> float:
    if protection.kind != Kind.OVERLAY:  # what Python writes is led to our own folder
        return writing_time.seconds(_nameless(protection.above[0]), size)
    program = [sys.executable, "-I", "-S", writing_time.__file__, path, str(size)]
    command, environ = protection.wrap(program), {**environ, **protection.environ}
    told = subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=LONGEST_S, check=True, text=True
    )
    return float(told.stdout)


def _existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.is_dir())


def _nameless(folder: Path) -> Callable[[], int]:
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None:
        raise OSError("no files without a name")
    return lambda: os.open(folder, os.O_WRONLY | flag, 0o600)
