"""All that is shown of one moment, in no language and for no screen: what a terminal and a browser are both made from. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import ClassVar

from flatout.base.records import Missing, Record, Struct, field
from flatout.machine.telemetry import CardProcess, CardSample, HostSample, Sample
from flatout.measure.model import Note
from flatout.watch.alerts import AT_LIMIT_C, Alert
from flatout.watch.causes import CARD_FULL, Slow
from flatout.watch.follow import Training
from flatout.watch.moments import Span
from flatout.watch.session import Verdict

LATELY_S = 60.0  # of phases
NEAR_LIMIT_C = 8
NEARLY_FULL = 0.9
UNKNOWN = Missing("not-reported")

CALM, WARM, HOT = "calm", "warm", "hot"


class ProcessView(Struct, frozen=True, kw_only=True):
    card: int
    pid: int | Missing
    name: str | Missing
    memory_bytes: int | Missing
    busy_percent: int | Missing
    ours: bool  # of the run that is shown


class CardView(Struct, frozen=True, kw_only=True):
    sample: CardSample
    trains: bool  # the run that is shown is on it
    own_bytes: int | Missing  # of its memory: what that run holds …
    other_bytes: int | Missing  # … and what other processes hold
    levels: dict[str, str] = field(default_factory=dict)  # figure -> calm, warm, hot


class Told(Struct, frozen=True, kw_only=True):
    t: float
    alert: Alert
    holds: bool


class Picture(Record):
    KIND: ClassVar[str] = "watch-picture"

    t: float
    cards: list[CardView] = field(default_factory=list)
    no_cards: Missing | None = None
    host: HostSample = field(default_factory=HostSample)
    training: Training | None = None
    lately: dict[str, float] = field(default_factory=dict)  # phase -> share of the last minute
    processes: list[ProcessView] = field(default_factory=list)
    slow: list[Slow] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)  # the newest last
    notes: list[Note] = field(default_factory=list)
    verdict: Verdict | None = None  # on the training so far


def cards_of(sample: Sample, pids: Iterable[int] = ()) -> list[CardView]:
    own = frozenset(pids)
    return [_card(card, own) for card in (() if isinstance(sample.cards, Missing) else sample.cards)]


def processes_of(sample: Sample, pids: Iterable[int] = ()) -> list[ProcessView]:
    """The run's own first, then by what they hold."""
    own = frozenset(pids)
    found = [
        ProcessView(
            card=card.index,
            pid=one.pid,
            name=one.name,
            memory_bytes=one.memory_bytes,
            busy_percent=one.busy_percent,
            ours=one.pid in own,
        )
        for card in (() if isinstance(sample.cards, Missing) else sample.cards)
        for one in (() if isinstance(card.processes, Missing) else card.processes)
    ]
    return sorted(found, key=lambda one: (not one.ours, one.card, -_known(one.memory_bytes)))


def lately(spans: Sequence[Span]) -> dict[str, float]:
    """Phases, as shares of the last minute that the journal tells of."""
    if not spans:
        return {}
    recent = [span for span in spans if span.end > spans[-1].end - LATELY_S]
    whole = math.fsum(span.end - span.start for span in recent)
    names = {name for span in recent for name in span.phases}
    if whole <= 0:
        return {}
    shares = {name: math.fsum(span.phases.get(name, 0.0) for span in recent) / whole for name in names}
    return {name: share for name, share in shares.items() if share > 0}


def told_of(so_far: Sequence[tuple[float, Alert]], holding: Sequence[Alert]) -> list[Told]:
    keys = [(one.code, one.about) for one in holding]
    return [Told(t=t, alert=alert, holds=(alert.code, alert.about) in keys) for t, alert in so_far]


def _card(card: CardSample, own: frozenset[int]) -> CardView:
    on_it = () if isinstance(card.processes, Missing) else card.processes
    mine = [one for one in on_it if one.pid in own]
    others = [one for one in on_it if one.pid not in own]
    why = card.processes if isinstance(card.processes, Missing) else None
    return CardView(
        sample=card,
        trains=bool(mine),
        own_bytes=why or _sum(mine),
        other_bytes=why or _sum(others),
        levels={"temperature_c": _temperature(card), "memory_used_bytes": _memory(card), "sm_clock_mhz": _clock(card)},
    )


def _sum(processes: Sequence[CardProcess]) -> int | Missing:
    known = [one.memory_bytes for one in processes]
    unknown = next((value for value in known if isinstance(value, Missing)), None)
    return unknown or sum(value for value in known if isinstance(value, int))


def _temperature(card: CardSample) -> str:
    if isinstance(card.temperature_c, Missing) or isinstance(card.temperature_limit_c, Missing):
        return CALM
    left = card.temperature_limit_c - card.temperature_c
    return HOT if left <= AT_LIMIT_C else WARM if left <= NEAR_LIMIT_C else CALM


def _memory(card: CardSample) -> str:
    used, total = card.memory_used_bytes, card.memory_total_bytes
    if isinstance(used, Missing) or isinstance(total, Missing) or not total:
        return CALM
    return HOT if used >= CARD_FULL * total else WARM if used >= NEARLY_FULL * total else CALM


def _clock(card: CardSample) -> str:
    """Held back while it works: whether that matters, the stretches tell."""
    if isinstance(card.held_by, Missing) or card.idle is True or not card.held_by:
        return CALM
    return HOT if any("THERMAL" in name or "BRAKE" in name for name in card.held_by) else WARM


def _known(value: float | Missing) -> float:
    return -1 if isinstance(value, Missing) else value
