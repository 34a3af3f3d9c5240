"""A run that has ended, watched again: from its journals, and from what the history holds of the same time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path

from _flatout_agent import wire
from flatout.base import records
from flatout.base.clock import Clock
from flatout.base.errors import FlatoutError, UsageError
from flatout.base.records import Missing
from flatout.launch.folder import records_of
from flatout.machine.telemetry import HostSample
from flatout.measure.model import Summary
from flatout.watch import past_looks
from flatout.watch.causes import slow_stretches
from flatout.watch.follow import SUMMARY, Follow, Training, epochs_said, spawned_at, tell
from flatout.watch.means import Means
from flatout.watch.moments import Span, lay_together
from flatout.watch.session import Watched
from flatout.watch.story import Line, Story
from flatout.watch.tail import Tail
from flatout.watch.verdict import judge
from flatout.watch.view.picture import Picture, cards_of, lately
from flatout.watch.view.traces import Traces

LASTS_S = 60.0  # a replay, at its first pace
NEWEST = "last"
BESIDE_S = 400.0  # a look of the history may stand for five minutes
NOT_KEPT = Missing("not-kept")


def find(named: str, here: Path, environ: Mapping[str, str]) -> Path:
    """The folder of a run: by its path, its number or the beginning of it, or `last`."""
    given = Path(named)
    folder = given.parent if given.name == SUMMARY else given
    if any(folder.glob(wire.journal_name("*"))):
        return folder
    try:
        runs = sorted(path for path in (records_of(here, environ) / "runs").iterdir() if any(path.glob(wire.journal_name("*"))))
    except OSError:
        runs = []
    fitting = runs if named == NEWEST else [path for path in runs if named and path.name.startswith(named)]
    if not fitting:
        known = ", ".join(path.name for path in runs[-3:])
        raise UsageError("error.watch-run" if known else "error.watch-no-runs", name=named, known=known)
    return fitting[-1]


class Replay:
    """A source of pictures, like `Feed`: `turn()` is where the replay has come to."""

    replayed = True
    every_s = 0.5
    code: int | None = None  # nothing ends it but its user

    def __init__(self, folder: Path, clock: Clock, here: Path, environ: Mapping[str, str]) -> None:
        self._clock = clock
        self._summary = _summary(folder)
        self.folder = folder
        self._trainings, self._spans = _told(folder, self._summary)
        ended = Follow(folder, here).poll(0.0)
        if self._trainings:
            self._trainings[-1].running, self._trainings[-1].ended = ended.running, ended.ended
        self._ends = [span.end for span in self._spans]
        self.started = self._spans[0].start if self._spans else clock.wall()
        self.ended = self._ends[-1] if self._ends else self.started
        self._samples = past_looks.looks(environ, self.started, self.ended)
        self._times = [sample.t for sample in self._samples]
        cards = [] if not self._samples or isinstance(self._samples[-1].cards, Missing) else self._samples[-1].cards
        card = cards[0].uuid if len(cards) == 1 else None
        moments = lay_together(self._spans, self._samples, card if isinstance(card, str) else None, ended.pids)
        self.slow = slow_stretches(moments)
        judged = judge(folder, self._trainings[-1]) if self._trainings else None
        self.verdict = None if judged is None else judged.verdict
        self.traces = Traces(whole=True)
        for sample in self._samples:
            self.traces.add(sample)
        self.traces.add_spans(folder.name, self._spans)
        self.pace = max(1.0, float(round((self.ended - self.started) / LASTS_S)))
        self.at = self.started
        self._paused, self._before = False, clock.monotonic()

    @property
    def summary(self) -> Summary | None:
        return self._summary

    def turn(self) -> Picture:
        now = self._clock.monotonic()
        if not self._paused:
            self.at = min(self.ended, self.at + (now - self._before) * self.pace)
        self._before = now
        return self.picture(self.at)

    def seek(self, seconds: float) -> None:
        self.at = min(self.ended, max(self.started, self.at + seconds))

    def hold(self, paused: bool) -> None:
        self._paused = paused

    def picture(self, t: float) -> Picture:
        """As it was at `t`: of what came later nothing is shown."""
        place = bisect_right(self._ends, t)
        training = self._trainings[place - 1] if place else Training(run_id=self.folder.name)
        look = bisect_right(self._times, t) - 1
        sample = self._samples[look] if look >= 0 and t - self._times[look] <= BESIDE_S else None
        cards = NOT_KEPT if sample is None else sample.cards
        unknown = HostSample(**dict.fromkeys(HostSample.__struct_fields__, NOT_KEPT))
        return Picture(
            t=t,
            cards=[] if sample is None else cards_of(sample, training.pids),
            no_cards=cards if isinstance(cards, Missing) else None,
            host=unknown if sample is None else sample.host,
            training=training,
            lately=lately(self._spans[max(0, place - 120) : place]),
            slow=[slow for slow in self.slow if slow.end <= t],
            verdict=self.verdict if t >= self.ended else None,
        )

    def watched(self) -> Watched:
        """The whole of it, as a session would have told it."""
        means = Means()
        for sample in self._samples:
            means.add(sample)
        training = self._trainings[-1] if self._trainings else None
        return Watched(started=self.started, ended=self.ended, means=means, training=training, slow=self.slow)


def _told(folder: Path, summary: Summary | None) -> tuple[list[Training], list[Span]]:
    """Of the leading process: what it had told by the end of each span."""
    began = spawned_at(folder, summary.started if summary is not None else 0.0)
    best: tuple[tuple[int, int], list[Line]] | None = None
    pids = []
    for path in sorted(folder.glob(wire.journal_name("*"))):
        lines = _lines(path)
        story = Story(began)
        story.read(lines, began)
        pids += [story.pid] if story.pid is not None else []
        if best is None or (story.steps, -story.rank) > best[0]:
            best = (story.steps, -story.rank), lines
    story, trainings, spans = Story(began), [], []
    epochs = epochs_said(summary.command if summary is not None else [])
    for line in best[1] if best is not None else []:
        t = line.get("t")
        fresh = story.read([line], began + (t * 1e-9 if isinstance(t, int | float) else 0.0))
        for span in fresh:
            training = Training(run_id=folder.name, pids=pids)
            tell(training, story, None, epochs)
            training.losses = training.losses[-1:]  # each line has all of them
            trainings.append(training)
            spans.append(span)
    for training, span in zip(trainings, spans, strict=True):
        training.left_s = spans[-1].end - span.end  # it is known by now
    return trainings, spans


def _lines(path: Path) -> list[Line]:
    tail, found = Tail(path), list[Line]()
    while lines := tail.poll():
        found += lines
    return found


def _summary(folder: Path) -> Summary | None:
    """A run that was killed has none, and its journals are enough."""
    try:
        return records.read(folder / SUMMARY, Summary)
    except (OSError, FlatoutError):
        return None
