"""Finds the knob with which a script fails: runs it again with halves of the knobs, each with a time limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from flatout.base import records
from flatout.base.records import Struct, field
from flatout.base.secret_forms import copy_scrubbed
from flatout.base.secrets import secrets_in
from flatout.launch import environment
from flatout.launch.child import not_ignored
from flatout.launch.error_texts import scrub_files
from flatout.launch.run import Finished, Wanted
from flatout.launch.settings import Settings

FOLDER = "bisect"

# A run that outlives the failing one by this much does not fail as that one did.
TIMES_AS_LONG = 2.0
AT_LEAST_S = 60.0

# Whoever ends a run by one of these wants it to end, not to start again.
ENDED_BY_THE_USER = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

Knobs = dict[str, str]


class Found(Struct, kw_only=True):
    """`bisect.<verdict>` in the catalogue of words."""

    verdict: str  # guilty, worked (nothing to find), ended-by-you, plain-fails, not-again (it failed once only)
    runs: int = 0
    knobs: Knobs = field(default_factory=dict)
    folder: str = ""


def search(finished: Finished, wanted: Wanted, environ: Mapping[str, str], tell: Callable[[int], None]) -> Found:
    """After a run with knobs. `tell` hears the number of each further run before it starts."""
    if finished.returncode == 0:
        return Found(verdict="worked")
    if -finished.returncode in ENDED_BY_THE_USER or finished.returncode - 128 in ENDED_BY_THE_USER:
        return Found(verdict="ended-by-you")
    trials = _Trials(finished, wanted, environ, tell)
    with _signals_end_us():
        verdict, guilty = _guilty(wanted.settings.for_the_agent, trials.fails)
    return Found(verdict=verdict, runs=trials.count, knobs=guilty, folder=trials.shown)


def _guilty(knobs: Knobs, fails: Callable[[Knobs], bool]) -> tuple[str, Knobs]:
    if fails({}):
        return "plain-fails", {}
    if not fails(knobs):
        return "not-again", {}
    return "guilty", smallest_failing(knobs, fails)


@contextlib.contextmanager
def _signals_end_us() -> Iterator[None]:
    """By an exception, so that the run under way is ended too: it has no terminal, and would train on alone."""

    def leave(number: int, frame: Any) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in not_ignored(ENDED_BY_THE_USER)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def smallest_failing(knobs: Knobs, fails: Callable[[Knobs], bool]) -> Knobs:
    """Delta debugging: of knobs that fail together, a smallest part that still does. Halves first, then finer parts."""
    parts = 2
    while len(knobs) > 1:
        names = list(knobs)
        cuts = [names[len(names) * i // parts : len(names) * (i + 1) // parts] for i in range(parts)]
        chosen = [{name: knobs[name] for name in cut} for cut in cuts]
        # With two parts, what is left of one is the other: it need not be tried twice.
        left = [{name: knobs[name] for name in names if name not in cut} for cut in cuts] if parts > 2 else []
        smaller = next((part for part in [*chosen, *left] if fails(part)), None)
        if smaller is not None:
            parts = 2 if smaller in chosen else max(parts - 1, 2)
            knobs = smaller
        elif parts < len(names):
            parts = min(2 * parts, len(names))
        else:
            break
    return knobs


class _Trials:
    """Runs of the script that nobody watches: no terminal, an own process group, ended when their time is over."""

    def __init__(self, finished: Finished, wanted: Wanted, environ: Mapping[str, str], tell: Callable[[int], None]) -> None:
        self.count = 0
        self.shown = os.path.join(finished.folder, FOLDER)
        self._command = finished.command
        self._limit_s = max(TIMES_AS_LONG * finished.wall_s, finished.wall_s + AT_LEAST_S)
        self._place = Path(finished.folder).resolve() / FOLDER
        self._wanted = wanted
        self._environ = environ
        self._tell = tell
        self._known: dict[frozenset[str], bool] = {}

    def fails(self, knobs: Knobs) -> bool:
        names = frozenset(knobs)
        if names not in self._known:
            self.count += 1
            self._tell(self.count)
            self._known[names] = self._run(knobs) != 0
        return self._known[names]

    def _run(self, knobs: Knobs) -> int:
        """The exit status; 0 too where the time was over before it failed."""
        place = self._place / f"{self.count:02d}"
        place.mkdir(parents=True)
        sources = {name: self._wanted.settings.sources[name] for name in knobs}
        told = Wanted(memory_fraction=self._wanted.memory_fraction, settings=Settings(values=knobs, sources=sources))
        records.write_bytes(place / "job.json", records.encode(told.job(place, time.time())))
        # Without a name until it can be kept: there may be keys and passwords in it.
        with tempfile.TemporaryFile(dir=place) as output:
            child = subprocess.Popen(
                self._command,
                env=environment.injected(self._environ, place / "job.json"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=os.name == "posix",
            )
            try:
                return child.wait(self._limit_s)
            except subprocess.TimeoutExpired:
                return 0
            finally:
                _end(child)
                with contextlib.suppress(OSError):  # a full disk costs what is kept, not the search
                    self._keep(output, place / "output.txt")

    def _keep(self, output: BinaryIO, path: Path) -> None:
        hidden = secrets_in(self._command, self._environ)
        scrub_files(path.parent, hidden)
        output.seek(0)
        with path.open("wb") as kept:
            copy_scrubbed(output, kept, hidden)


def _end(child: subprocess.Popen[bytes]) -> None:
    """With all that it started; after a run that ended by itself, whatever it left behind."""
    with contextlib.suppress(OSError):
        if os.name == "posix":
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    child.wait()
