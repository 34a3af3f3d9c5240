"""Alerts: pure, from the state of the training, the last samples of the GPUs, and the time.

An alert says what was seen, not what it might mean: a training that takes no step may hang, or validate for a long time. Each
holds as long as its reason does; `Raised` tells which are new.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flatout.base.records import Missing, Struct, field
from flatout.machine.telemetry import CardSample, Sample
from flatout.measure.trend import theil_sen
from flatout.watch.follow import Training
from flatout.watch.moments import Span

STILL = 10.0  # usual steps without a step …
STILL_LEAST_S = 10.0  # … and never less: a journal is written once a second and more rarely as a run gets older
STILL_BESIDE_LONGEST = 2.0  # … nor than twice the longest pause that this run has made so far
HOUR_S = 3600.0
SLOPE_SURE = 4.0  # standard deviations of the trend
SLOPE_SETTLED = 0.25  # of the points: the optimizer's state and caches come with the first steps
SLOPE_FEWEST, SLOPE_MOST, SLOPE_LEAST_S = 24, 60, 60.0  # pairs of points are compared: at every look
SLOPE_LEAST_SHARE = 0.01  # of the card's memory has been taken meanwhile
AT_LIMIT_C = 1  # below the limit is at the limit
AT_LIMIT_LOOKS = 5
OTHER_BYTES = 256 << 20  # what a desktop's programs hold is nobody's concern


class Alert(Struct, frozen=True, kw_only=True):
    """`code`: no-step, loss-not-a-number, memory-rising, temperature-limit, another-process, run-ended."""

    code: str
    about: str = ""  # the card, or the run
    evidence: dict[str, Any] = field(default_factory=dict)


def alerts(now: float, training: Training | None, spans: Sequence[Span], samples: Sequence[Sample]) -> list[Alert]:
    """`samples`: the last looks in the order of time; what is not known raises nothing."""
    found: list[Alert | None] = []
    if training is not None:
        found += [_ended(training), _still(now, training), _not_a_number(training), _rising(training, spans, samples)]
    if samples:
        for card in _cards(samples[-1]):
            found += [_hot(card, samples), *_others(card, training, samples)]
    return [alert for alert in found if alert is not None]


def _ended(training: Training) -> Alert | None:
    if training.running:
        return None
    return Alert(
        code="run-ended", about=training.run_id, evidence={"how": training.ended or "finished", "steps": training.steps}
    )


def _still(now: float, training: Training) -> Alert | None:
    step_s, told = training.step_s, training.last_told
    if not training.running or isinstance(step_s, Missing) or told is None:
        return None
    # What the journal has not told yet may have been stepped: it is silent for `pause_s` by design.
    silent = now - told - training.pause_s
    if silent < max(STILL * step_s, STILL_LEAST_S, STILL_BESIDE_LONGEST * training.longest_s):
        return None
    return Alert(code="no-step", about=training.run_id, evidence={"seconds": now - told, "usual_step_s": step_s})


def _not_a_number(training: Training) -> Alert | None:
    if isinstance(training.not_finite_from, Missing):
        return None
    return Alert(code="loss-not-a-number", about=training.run_id, evidence={"step": training.not_finite_from})


def _rising(training: Training, spans: Sequence[Span], samples: Sequence[Sample]) -> Alert | None:
    """What torch keeps rises steadily, and would reach what the card has within the hour."""
    card = _card_of(training, samples)
    if card is None or isinstance(card.memory_total_bytes, Missing) or isinstance(card.memory_used_bytes, Missing):
        return None
    points = [(span.end, float(span.reserved_bytes)) for span in spans if isinstance(span.reserved_bytes, int)]
    settled = points[int(SLOPE_SETTLED * len(points)) :]
    if len(settled) < SLOPE_FEWEST or settled[-1][0] - settled[0][0] < SLOPE_LEAST_S or not training.running:
        return None
    thinned = settled[:: -(-len(settled) // SLOPE_MOST)]
    trend = theil_sen(thinned)
    if trend is None or trend.significance < SLOPE_SURE or trend.low <= 0:
        return None
    # It still rises: what was allocated once and kept is no leak.
    late = theil_sen(thinned[len(thinned) // 2 :])
    if late is None or late.slope <= 0 or settled[-1][1] - settled[0][1] < SLOPE_LEAST_SHARE * card.memory_total_bytes:
        return None
    left = card.memory_total_bytes - card.memory_used_bytes
    seconds = left / min(trend.slope, late.slope)
    if seconds > HOUR_S:
        return None
    evidence = {"bytes_an_hour": trend.slope * HOUR_S, "seconds_left": seconds, "code": "AP512"}
    return Alert(code="memory-rising", about=_name(card), evidence=evidence)


def _hot(card: CardSample, samples: Sequence[Sample]) -> Alert | None:
    """For some looks one after the other: a single one may be a sensor's."""
    looks = [one for sample in samples[-AT_LIMIT_LOOKS:] for one in _cards(sample) if _same(one, card)]
    hot = [
        one
        for one in looks
        if isinstance(one.temperature_c, int)
        and isinstance(one.temperature_limit_c, int)
        and one.temperature_c >= one.temperature_limit_c - AT_LIMIT_C
    ]
    if len(hot) < AT_LIMIT_LOOKS:
        return None
    evidence = {"temperature_c": hot[-1].temperature_c, "limit_c": hot[-1].temperature_limit_c, "code": "HW104"}
    return Alert(code="temperature-limit", about=_name(card), evidence=evidence)


def _others(card: CardSample, training: Training | None, samples: Sequence[Sample]) -> Iterable[Alert]:
    """On the card that the run trains on, and that came after the first of these looks."""
    if training is None or isinstance(card.processes, Missing) or not _is_on(card, training):
        return
    first = next((one for one in _cards(samples[0]) if _same(one, card)), None)
    before = set() if first is None or isinstance(first.processes, Missing) else {one.pid for one in first.processes}
    for one in card.processes:
        large = isinstance(one.memory_bytes, int) and one.memory_bytes >= OTHER_BYTES
        if one.pid in before or one.pid in training.pids or not large or len(samples) < 2:
            continue
        name = one.name if isinstance(one.name, str) else "?"
        yield Alert(
            code="another-process",
            about=_name(card),
            evidence={"pid": one.pid, "name": name, "memory_bytes": one.memory_bytes},
        )


def _cards(sample: Sample) -> tuple[CardSample, ...]:
    return () if isinstance(sample.cards, Missing) else sample.cards


def _card_of(training: Training, samples: Sequence[Sample]) -> CardSample | None:
    cards = _cards(samples[-1]) if samples else ()
    return next((card for card in cards if _is_on(card, training)), cards[0] if len(cards) == 1 else None)


def _is_on(card: CardSample, training: Training) -> bool:
    return not isinstance(card.processes, Missing) and any(one.pid in training.pids for one in card.processes)


def _same(one: CardSample, other: CardSample) -> bool:
    return one.uuid == other.uuid if isinstance(other.uuid, str) else one.index == other.index


def _name(card: CardSample) -> str:
    return f"{card.index} {card.name}" if isinstance(card.name, str) else str(card.index)


class Raised:
    """Each alert is told once as long as it holds; one that has gone may come again."""

    def __init__(self) -> None:
        self._holding: set[tuple[str, str, Any]] = set()

    def new(self, found: Sequence[Alert]) -> list[Alert]:
        keys = {_key(alert) for alert in found}
        fresh = [alert for alert in found if _key(alert) not in self._holding]
        self._holding = keys
        return fresh


def _key(alert: Alert) -> tuple[str, str, Any]:
    return alert.code, alert.about, alert.evidence.get("pid")
