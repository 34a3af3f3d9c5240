"""A search carried out: segment after segment, each on the disk before the next begins."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from flatout.base.errors import RecordError, UsageError
from flatout.tune.execution import search_journal
from flatout.tune.execution.search_journal import About, Told, TuneLine, line_of
from flatout.tune.execution.trial_runner import Trials
from flatout.tune.search.questions_and_answers import Decision, Finished, Plan, Progress
from flatout.tune.search.search import Search

if sys.platform != "win32":
    import fcntl

Watcher = Callable[[Progress, list[Decision]], None]  # called before each segment, with the decisions that are new

JOURNAL = "tune.jsonl"


class Session:
    """Owns the journal, alone. Resumed, it begins after the last segment that is on the disk."""

    def __init__(self, folder: Path, plan: Plan | None = None, about: About | None = None) -> None:
        self._path = folder / JOURNAL
        told = resumable(folder, about) if plan is None else None
        self._results = told.results if told is not None else []
        self.plan = told.plan if told is not None else plan
        self.resumed = len(self._results)
        self._file = _alone(self._path)
        if told is not None:
            self._mend(told)
        else:
            self._append(TuneLine(about=about, plan=plan))

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._file)

    def run(self, trials: Trials, watch: Watcher) -> Finished:
        assert self.plan is not None
        search = Search(self.plan)
        said: list[Decision] = []
        trials.batch = self.plan.batch_line
        while True:
            wanted = search.next(self._results)
            # Not by their number: a knob that is tried again has its old decision replaced by the new one.
            fresh = [decision for decision in search.decisions if decision not in said]
            said += fresh
            watch(search.progress(), fresh)
            if isinstance(wanted, Finished):
                return wanted
            result = trials.carry_out(wanted)
            self._append(TuneLine(segment=wanted, result=result, decisions=fresh))
            self._results.append(result)

    def _append(self, line: TuneLine) -> None:
        """Whole or not at all, where it can be helped: a full disk must not leave half a line."""
        data = line_of(line).encode("ascii")
        before = os.fstat(self._file).st_size
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, before)
            raise OSError(error.errno, error.strerror, str(self._path)) from error

    def _mend(self, told: Told) -> None:
        """Half a last line goes, so that the next one does not continue it."""
        os.ftruncate(self._file, told.whole)
        if not told.ended:
            os.write(self._file, b"\n")


def resumable(folder: Path, about: About | None) -> Told:
    """What the journal in this folder says, if this search can go on from it."""
    path = folder / JOURNAL
    if not folder.is_dir():
        raise UsageError("tune-resume.no-folder", folder=folder)
    if not path.is_file():
        raise UsageError("tune-resume.no-journal", folder=folder, name=JOURNAL)
    try:
        told = search_journal.read(path.read_bytes())
    except OSError as error:
        raise UsageError("tune-resume.unreadable", path=path, detail=error.strerror or error) from error
    except RecordError as error:
        key = "other-version" if error.key == "error.record-newer" else "damaged"
        raise UsageError(f"tune-resume.{key}", path=path) from error
    if told.about is not None and about is not None:
        if told.about.command != about.command:
            raise UsageError("tune-resume.other-script", folder=folder, command=" ".join(told.about.command))
        if told.about.script != about.script:
            raise UsageError("tune-resume.changed-script", folder=folder)
    _retraced(told, path)
    return told


def _retraced(told: Told, path: Path) -> None:
    """A search that would ask other questions than those that were answered is of another version, or of other files."""
    search = Search(told.plan)
    try:
        for number, segment in enumerate(told.segments):
            wanted = search.next(told.results[:number])
            if segment is not None and wanted != segment:
                key = "other-version" if isinstance(wanted, Finished) or wanted.id == segment.id else "damaged"
                raise UsageError(f"tune-resume.{key}", path=path)
        search.next(told.results)
    except RecordError as error:
        raise UsageError("tune-resume.damaged", path=path) from error


def _alone(path: Path) -> int:
    """Open for appending, and held: two searches that write one journal would spoil it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            raise UsageError("tune-resume.busy", folder=path.parent) from error
    return file
