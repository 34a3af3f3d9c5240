"""One watch session: sample, store, follow the training, judge; again and again."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

from flatout.base.clock import Clock
from flatout.base.records import Missing, Record, Struct, field
from flatout.machine.sampler import Sampler
from flatout.machine.telemetry import CardSample, Sample
from flatout.measure.model import Note
from flatout.watch import history
from flatout.watch.alerts import Alert, Raised, alerts
from flatout.watch.causes import Slow, slow_stretches
from flatout.watch.follow import Follow, Training, find_running, values_of
from flatout.watch.means import Means
from flatout.watch.moments import BESIDE_S, Moment, Span, lay_together

LOOK_FOR_RUNS_S = 5.0
PENDING = 900  # looks that wait for the training to tell of the same time: an old run tells every few minutes
KEPT_MOMENTS = 1800
BEFORE = 120  # looks that alerts compare with


class Look(Record):
    """One turn: what `flatout watch --once --json` prints."""

    KIND: ClassVar[str] = "watch-look"

    sample: Sample
    training: Training | None = None
    alerts: list[Alert] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


class Verdict(Struct, kw_only=True):
    bound_by: str = "unknown"
    evidence: dict[str, float] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)  # as in `doctor --json`


class Watched(Record):
    """A whole session: what `flatout watch --for N --json` prints at its end."""

    KIND: ClassVar[str] = "watch-summary"

    started: float
    ended: float
    means: Means
    training: Training | None = None
    slow: list[Slow] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)  # each as it was first raised
    verdict: Verdict | None = None  # of the training
    notes: list[Note] = field(default_factory=list)


class Session:
    def __init__(self, clock: Clock, here: Path, environ: Mapping[str, str] = os.environ) -> None:
        self._sampler = Sampler(clock)
        self._history = history.begin(environ)
        self._here, self._environ = here, environ
        self._follow: Follow | None = None
        self._looked_for_runs: float | None = None
        self._samples: deque[Sample] = deque(maxlen=BEFORE)
        self._pending: deque[Sample] = deque(maxlen=PENDING)
        self._moments: deque[Moment] = deque(maxlen=KEPT_MOMENTS)
        self._laid = 0.0
        self._raised = Raised()
        self._all_raised: list[Alert] = []
        self._means = Means()
        self._started = self._sampler.now()
        self._training: Training | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._sampler.__exit__(kind, error, trace)
        self._history.close()

    def turn(self) -> tuple[Look, list[Alert]]:
        """What is now, and which of its alerts are new."""
        sample = self._sampler.sample()
        self._history.add(sample)
        self._means.add(sample)
        self._samples.append(sample)
        self._pending.append(sample)
        self._training = self._read_training(sample.t)
        found = alerts(sample.t, self._training, self.spans, list(self._samples))
        fresh = self._raised.new(found)
        self._all_raised += fresh
        return Look(sample=sample, training=self._training, alerts=found, notes=list(self._history.notes)), fresh

    @property
    def spans(self) -> list[Span]:
        """Of the training that is followed, so far."""
        return self._follow.spans if self._follow else []

    @property
    def folder(self) -> Path | None:
        """Of the run that is followed."""
        return self._follow.folder if self._follow else None

    @property
    def environ(self) -> Mapping[str, str]:
        return self._environ

    def slow(self) -> list[Slow]:
        return slow_stretches(list(self._moments))

    def summary(self) -> Watched:
        return Watched(
            started=self._started,
            ended=self._sampler.now(),
            means=self._means,
            training=self._training,
            slow=self.slow(),
            alerts=self._all_raised,
            notes=list(self._history.notes),
        )

    def _read_training(self, now: float) -> Training | None:
        due = self._looked_for_runs is None or now - self._looked_for_runs >= LOOK_FOR_RUNS_S
        if (self._training is None or not self._training.running) and due:
            self._looked_for_runs = now
            place = find_running(self._here, self._environ)
            if place is not None:
                self._follow, self._laid = Follow(place, self._here), 0.0
                self._moments.clear()
        if self._follow is None:
            return None
        training = self._follow.poll(now)
        fresh = [span for span in self._follow.spans if span.end > self._laid]
        if fresh:
            self._laid = fresh[-1].end
            for span in fresh:
                self._history.add_run(span.end, training.run_id, values_of(training, span))
            self._moments += lay_together(fresh, list(self._pending), self._card(training), training.pids)
            while self._pending and self._pending[0].t <= self._laid - BESIDE_S:
                self._pending.popleft()
        return training

    def _card(self, training: Training) -> str | None:
        """The one that the training is on: by its process, or because there is only one."""
        cards: tuple[CardSample, ...] = ()
        for sample in reversed(self._pending):
            if not isinstance(sample.cards, Missing):
                cards = sample.cards
                break
        for card in cards:
            on_it = () if isinstance(card.processes, Missing) else card.processes
            if any(one.pid in training.pids for one in on_it) and isinstance(card.uuid, str):
                return card.uuid
        return cards[0].uuid if len(cards) == 1 and isinstance(cards[0].uuid, str) else None
