"""One run from start to end: folder, job, child, journals."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from _flatout_agent import wire
from flatout.base import records
from flatout.base.clock import Clock
from flatout.base.records import Struct, field
from flatout.base.secrets import secrets_in
from flatout.launch import child, environment, folder, journals
from flatout.launch.error_texts import errors_scrubbed, scrub_files
from flatout.launch.settings import Settings
from flatout.launch.watcher import Watcher
from flatout.machine.machine_facts import Gpu
from flatout.machine.run_look import GpuDuring, HostStrain


class Finished(Struct, kw_only=True):
    """What the parent knows of a run that has ended."""

    run_id: str
    folder: str
    command: list[str]
    started: float
    wall_s: float
    returncode: int
    journals: list[list[dict[str, Any]]]
    gpus_before: list[Gpu] = field(default_factory=list)
    gpus_during: list[GpuDuring] = field(default_factory=list)
    host: HostStrain = field(default_factory=HostStrain)
    deep: bool = False  # asked for
    settings: Settings = field(default_factory=Settings)


class Wanted(Struct, kw_only=True):
    """What the agent is to do beside watching."""

    memory_fraction: float | None = None
    deep: bool = False
    auto: bool = False
    settings: Settings = field(default_factory=Settings)

    def job(self, place: Path, started: float) -> dict[str, Any]:
        knobs = self.settings.for_the_agent
        job = wire.new_job(str(place), started, self.memory_fraction, deep=self.deep, knobs=knobs, auto=self.auto)
        # Said even where it is False: the agent checks unless it is told otherwise.
        if "knobs" not in job:
            return job
        made_for = self.settings.made_for
        more = {"profile_made_for": made_for, "plain": self.settings.plain, "put_off": self.settings.put_off}
        return {**job, "knobs_check": self.settings.check, **{name: value for name, value in more.items() if value}}


def run_plain(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """FLATOUT=off: the script and nothing else."""
    return child.run(command, environ)


def run_observed(
    command: Sequence[str],
    environ: Mapping[str, str],
    clock: Clock,
    wanted: Wanted | None = None,
    ended: Callable[[], None] = lambda: None,
    beside: Callable[[Path], AbstractContextManager[object]] | None = None,
) -> Finished:
    """`ended` is called the moment the child is gone, before anything is read or written; `beside` goes with it until then."""
    started = clock.wall()
    run_id, place = folder.new_run(Path.cwd(), started)
    wanted = wanted or Wanted()
    job = place / "job.json"
    records.write_bytes(job, wire.job_text(wanted.job(place, started)))
    watcher = Watcher()
    # The wall clock is for dates and may be set meanwhile; what took how long is told by the other one.
    began = clock.monotonic()
    returncode = child.run(command, environment.injected(environ, job), _both(watcher, beside(place) if beside else None))
    wall_s = clock.monotonic() - began
    ended()
    hidden = secrets_in(command, environ)
    scrub_files(place, hidden)
    return Finished(
        run_id=run_id,
        folder=_shown(place),
        command=list(command),
        started=started,
        wall_s=wall_s,
        returncode=returncode,
        journals=[[errors_scrubbed(line, hidden) for line in lines] for lines in journals.read(place)],
        gpus_before=watcher.before,
        gpus_during=watcher.during,
        host=watcher.host,
        deep=wanted.deep,
        settings=wanted.settings,
    )


@contextlib.contextmanager
def _both(one: AbstractContextManager[object], other: AbstractContextManager[object] | None) -> Iterator[None]:
    with one, other or contextlib.nullcontext():
        yield


def _shown(place: Path) -> str:
    """Relative where it lies below the working folder: shorter to read, and the same to type."""
    return os.path.relpath(place) if place.is_relative_to(Path.cwd()) else str(place)
