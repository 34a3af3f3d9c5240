"""One run from start to end: folder, job, child, journals."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _flatout_agent import wire
from flatout.base import records
from flatout.base.clock import Clock
from flatout.base.records import Struct
from flatout.launch import child, environment, folder


class Finished(Struct, kw_only=True):
    """What the parent knows of a run that has ended."""

    run_id: str
    folder: str
    command: list[str]
    started: float
    wall_s: float
    returncode: int
    journals: list[list[dict[str, Any]]]


def run_plain(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """FLATOUT=off: the script and nothing else."""
    return child.run(command, environ)


def run_observed(
    command: Sequence[str], environ: Mapping[str, str], clock: Clock, memory_fraction: float | None = None
) -> Finished:
    started = clock.wall()
    run_id, place = folder.new_run(Path.cwd(), started)
    job = place / "job.json"
    records.write_bytes(job, records.encode(wire.new_job(str(place), started, memory_fraction)))
    began = clock.monotonic()
    returncode = child.run(command, environment.injected(environ, job))
    return Finished(
        run_id=run_id,
        folder=_shown(place),
        command=list(command),
        started=started,
        wall_s=clock.monotonic() - began,
        returncode=returncode,
        journals=[wire.parse_journal(text) for text in _journals(place)],
    )


def _journals(place: Path) -> list[str]:
    return [path.read_text(encoding="ascii", errors="replace") for path in sorted(place.glob(wire.journal_name("*")))]


def _shown(place: Path) -> str:
    """Relative where it lies below the working folder: shorter to read, and the same to type."""
    return os.path.relpath(place) if place.is_relative_to(Path.cwd()) else str(place)
