"""What the window asks once a second: the session's next turn, as a picture with its history."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.machine.machine_facts import Machine
from flatout.machine.telemetry import Sample
from flatout.watch import past_looks
from flatout.watch.alerts import Alert
from flatout.watch.causes import Slow
from flatout.watch.events import Notifier, code_of
from flatout.watch.follow import Training
from flatout.watch.session import Look, Session, Verdict
from flatout.watch.view.picture import Picture, cards_of, lately, processes_of, told_of
from flatout.watch.view.traces import FINE_KEPT, Traces

SLOW_EVERY_S = 5.0
VERDICT_EVERY_S = 20.0
TOLD_KEPT = 200


class Feed:
    """`turn()` may be called from another thread than what reads `traces`; never from two at once."""

    replayed = False
    every_s = 1.0
    pace = 1.0

    def __init__(self, session: Session, wanted: frozenset[str] = frozenset(), notifier: Notifier | None = None) -> None:
        self._session, self._wanted, self._notifier = session, wanted, notifier
        self.code: int | None = None  # of the first event that was wanted
        self.traces = Traces()
        self.fresh: list[Alert] = []  # of the last turn
        self._first: Sample | None = None
        self._begun = False
        self._told: list[tuple[float, Alert]] = []
        self._slow: list[Slow] = []
        self._judged = 0.0
        self._verdict: Verdict | None = None
        self._verdict_at = 0.0
        self._machine: Machine | None = None

    def look(self) -> Look:
        """One turn without a picture, for plain lines."""
        look, self.fresh = self._session.turn()
        run_id = None if look.training is None else look.training.run_id
        if self._notifier is not None:
            self._notifier.tell(look.sample.t, self.fresh, run_id)
        if self.code is None:
            self.code = code_of(self.fresh, self._wanted)
        return look

    def turn(self) -> Picture:
        look = self.look()
        sample, training = look.sample, look.training
        self._trace(sample)
        if training is not None:
            self.traces.add_spans(training.run_id, self._session.spans)
        self._told = [*self._told, *((sample.t, alert) for alert in self.fresh)][-TOLD_KEPT:]
        if sample.t - self._judged >= SLOW_EVERY_S:
            self._judged, self._slow = sample.t, self._session.slow()
        if training is not None and sample.t - self._verdict_at >= VERDICT_EVERY_S:
            self._verdict_at, self._verdict = sample.t, self._verdict_on(training)
        pids = training.pids if training is not None else []
        return Picture(
            t=sample.t,
            cards=cards_of(sample, pids),
            no_cards=sample.cards if isinstance(sample.cards, Missing) else None,
            host=sample.host,
            training=training,
            lately=lately(self._session.spans),
            processes=processes_of(sample, pids),
            slow=self._slow,
            verdict=self._verdict if training is not None else None,
            told=told_of(self._told, look.alerts),
            notes=[*look.notes, *(self._notifier.notes if self._notifier is not None else [])],
        )

    def _trace(self, sample: Sample) -> None:
        """The history is read at the second turn: the first picture is not to wait for it."""
        if not self._begun:
            if self._first is None:
                self._first = sample
                return
            self._begun = True
            kept = past_looks.looks(self._session.environ, sample.t - FINE_KEPT, self._first.t - 0.5)
            self.traces.begin_with(kept, self._first)
            self.traces.add(self._first)
        self.traces.add(sample)

    def _verdict_on(self, training: Training) -> Verdict | None:
        from flatout.watch import verdict  # the doctor's rules: the first look is not to wait for them

        folder = self._session.folder
        self._machine = self._machine or verdict.machine_now()
        judged = None if folder is None else verdict.judge(folder, training, self._machine)
        return None if judged is None else judged.verdict

    def seek(self, seconds: float) -> None:
        """There is nothing to go back to: what happens now is shown."""

    def hold(self, paused: bool) -> None:
        """Looks go on while the picture stands still: the history has no hole."""
