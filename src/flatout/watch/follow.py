"""Follows a running run by its folder: its journals, its leading process, and whether it is still running."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from _flatout_agent import wire
from flatout.base.errors import FlatoutError
from flatout.base.records import Missing, Struct, field
from flatout.launch.folder import records_of
from flatout.machine import host
from flatout.tune.search import run_length
from flatout.watch.columns import SHARES, Values
from flatout.watch.moments import Span
from flatout.watch.story import NOT_YET, Story
from flatout.watch.tail import Tail

SUMMARY = "summary.json"
MOST_JOURNALS = 64
KEPT_SPANS = 3600
SUMMARY_S = 10.0  # at most from the end of the training to its summary


class Training(Struct, kw_only=True):
    """A running training, as far as its journal tells."""

    run_id: str
    running: bool = True
    ended: str | None = None  # finished, failed, killed, out-of-memory, record-gone
    pid: int | Missing = NOT_YET  # of the process that leads
    pids: list[int] = field(default_factory=list)
    steps: int = 0
    samples: int = 0
    step_s: float | Missing = NOT_YET
    samples_per_s: float | Missing = NOT_YET
    phases: dict[str, float] = field(default_factory=dict)  # seconds, since the start
    losses: list[tuple[int, float]] = field(default_factory=list)
    not_finite_from: int | Missing = NOT_YET
    epoch: float | Missing = NOT_YET
    epochs: float | Missing = NOT_YET
    left_s: float | Missing = NOT_YET  # estimated
    last_told: float | None = None  # when its journal was last written
    pause_s: float = 1.0  # that its agent keeps between two lines, by design
    longest_s: float = 0.0  # that it was silent so far: a validation, a checkpoint


class Follow:
    """`poll(now)` reads what is new. A folder that is deleted meanwhile ends the training, with a reason."""

    def __init__(self, folder: Path, here: Path | None = None) -> None:
        self.folder = folder
        self._here = here or Path.cwd()
        self._tails: dict[Path, Tail] = {}
        self._stories: dict[Path, Story] = {}
        self._spawned: float | None = None
        self._length: tuple[int | None, run_length.RunLength | None] | None = None
        self._epochs: float | Missing = NOT_YET
        self._longest_s = 0.0
        self._was_running = False  # when it was looked at before
        self._all_finished_at: float | None = None
        self._last_told: float | None = None
        self.spans: list[Span] = []  # of the leading process, the last hour's and more

    def poll(self, now: float) -> Training:
        training = Training(run_id=self.folder.name)
        if self._spawned is None:
            self._spawned = spawned_at(self.folder, now)
        fresh = self._read(now)
        stories = list(self._stories.values())
        lead = max(stories, key=lambda story: (story.steps, -story.rank), default=None)
        if lead is not None:
            self.spans = [*self.spans, *fresh.get(id(lead), [])][-KEPT_SPANS:]
            self._tell(training, lead)
        training.pids = [story.pid for story in stories if story.pid is not None]
        training.ended = self._ended(stories, now)
        training.running = self._was_running = training.ended is None
        return training

    def _read(self, now: float) -> dict[int, list[Span]]:
        fresh: dict[int, list[Span]] = {}
        try:
            paths = sorted(self.folder.glob(wire.journal_name("*")))[:MOST_JOURNALS]
        except OSError:
            paths = []
        for path in paths:
            tail = self._tails.setdefault(path, Tail(path))
            lines = tail.poll()
            if tail.begun_again or path not in self._stories:
                self._stories[path] = Story(self._spawned or now)
            story = self._stories[path]
            fresh[id(story)] = story.read(lines or [], now)
        return fresh

    def _tell(self, training: Training, lead: Story) -> None:
        told = lead.last_window
        if told is not None and self._last_told is not None and told > self._last_told:
            self._longest_s = max([self._longest_s, *(span.end - span.start for span in self.spans[-8:] if span.steps)])
        self._last_told = told
        training.longest_s = self._longest_s
        length = self._run_length(lead)
        tell(training, lead, None if length is None else length.steps, self._epochs)

    def _run_length(self, lead: Story) -> run_length.RunLength | None:
        """Looked for once, and once more when it is known how long an epoch is."""
        if self._length is not None and self._length[0] == lead.epoch_steps:
            return self._length[1]
        line = host.command_line(lead.pid) if lead.pid is not None else Missing("not-reported")
        found = None if isinstance(line, Missing) else length_by(line, lead.epoch_steps, self._here)
        self._epochs = Missing("length-unknown") if isinstance(line, Missing) else epochs_said(line)
        self._length = (lead.epoch_steps, found)
        return found

    def _ended(self, stories: list[Story], now: float) -> str | None:
        if not self.folder.is_dir():
            return "record-gone"
        if any(story.ran_out_of_memory and story.finished for story in stories):
            return "out-of-memory"
        if (self.folder / SUMMARY).exists():
            return "failed" if _exit_code(self.folder / SUMMARY) else "finished"
        if stories and all(story.finished for story in stories):
            if not self._was_running:
                return "finished"
            # How it ended stands in the summary, which comes next; where nobody is left to write one, nobody will tell.
            self._all_finished_at = now if self._all_finished_at is None else self._all_finished_at
            return "finished" if now - self._all_finished_at > SUMMARY_S else None
        pids = [story.pid for story in stories if story.pid is not None and not story.finished]
        if pids and not any(host.is_alive(pid) for pid in pids):
            return "killed"
        return None


def _exit_code(path: Path) -> int:
    """Of the script, as the summary has it; 0 where it cannot be read."""
    try:
        told = json.loads(path.read_bytes()).get("exit_code")
    except (OSError, ValueError, AttributeError):
        return 0
    return told if isinstance(told, int) else 0


def tell(training: Training, lead: Story, steps: int | None, epochs: float | Missing) -> None:
    """What the leading process says, up to where it was read."""
    training.pid = lead.pid if lead.pid is not None else NOT_YET
    training.steps, training.samples = lead.steps, lead.samples
    training.step_s, training.samples_per_s = lead.step_s, lead.samples_per_s
    training.phases, training.losses = lead.phases, lead.losses
    training.not_finite_from, training.epoch = lead.not_finite_from, lead.epoch
    training.last_told, training.pause_s = lead.last_window, lead.pause_s
    training.epochs = epochs
    training.left_s = lead.left_s(steps)


def epochs_said(command: list[str]) -> float | Missing:
    """By the command line, not put together from steps: an epoch's length is known to a window's length alone."""
    said = run_length.by_argument(command, None) if command else None
    return Missing("length-unknown") if said is None or not said.epochs else said.epochs


def length_by(command: list[str], epoch_steps: int | None, here: Path) -> run_length.RunLength | None:
    """What the command line says of the run's length."""
    try:
        return run_length.find_length(command, None, {"loaders": [epoch_steps]}, here) if command else None
    except (FlatoutError, OSError, ValueError):
        return None


def values_of(training: Training, span: Span) -> Values:
    """For the history: columns of `RUN`."""
    length = span.end - span.start
    values: Values = {
        "steps": training.steps,
        "step_s": length / span.steps if span.steps else NOT_YET,
        "samples_per_s": span.samples / span.training_s if span.samples and span.training_s > 0 else Missing("no-batches"),
        "epoch": training.epoch,
        "loss": span.loss,
        "reserved_bytes": span.reserved_bytes,
        "retries": span.retries,
        "ended": training.ended,
    }
    shares = {f"share_{name}": span.phases.get(name, 0.0) / length if length > 0 else 0.0 for name in SHARES}
    return {**values, **shares}


def find_running(here: Path, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The newest run that was begun in this folder and has not ended."""
    try:
        runs = sorted((records_of(here, environ) / "runs").iterdir(), reverse=True)[:20]
    except OSError:
        return None
    for folder in runs:
        if not (folder / SUMMARY).exists() and (folder / "job.json").exists():
            story = Follow(folder, here).poll(0.0)
            if story.running and story.pids:
                return folder
    return None


def spawned_at(folder: Path, now: float) -> float:
    try:
        value = json.loads((folder / "job.json").read_text(encoding="utf-8")).get("spawned")
    except (OSError, ValueError, AttributeError):
        return now
    return float(value) if isinstance(value, int | float) else now
