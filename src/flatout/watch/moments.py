"""A stretch of training between two lines of its journal, with the GPU and host samples of that time. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from _flatout_agent.wire import TRAINING_PHASES
from flatout.base.records import Missing, Struct, field
from flatout.machine.telemetry import CardSample, Sample

UNKNOWN = Missing("not-reported")

BESIDE_S = 2.0

# Phases that do not come with every step: they make a stretch slow only where they come more often than they did.
NOW_AND_THEN = ("validation", "checkpoint")


class Span(Struct, frozen=True, kw_only=True):
    """One process's journal, from one window to the next. Times are the sampler's."""

    start: float
    end: float
    steps: int
    samples: int = 0
    phases: dict[str, float] = field(default_factory=dict)  # seconds
    outside_s: float = 0.0  # of `script`: what does not come with every step
    retries: int = 0  # of the allocator
    reserved_bytes: int | Missing = UNKNOWN
    loss: float | Missing = UNKNOWN
    gc_s: float | Missing = UNKNOWN  # Python's garbage collection, where the agent tells of it

    @property
    def training_s(self) -> float:
        """What comes with every step."""
        return max(0.0, math.fsum(self.phases.get(name, 0.0) for name in TRAINING_PHASES) - self.outside_s)


class Seen(Struct, frozen=True, kw_only=True):
    """The card of the training and the host, while it lasted: means of the looks that fell into it."""

    clock_mhz: float | Missing = UNKNOWN
    temperature_c: float | Missing = UNKNOWN
    power_w: float | Missing = UNKNOWN
    utilisation: float | Missing = UNKNOWN
    held: dict[str, float] = field(default_factory=dict)  # reason -> share of the looks
    memory_share: float | Missing = UNKNOWN  # of the card's memory in use
    others: dict[str, float] = field(default_factory=dict)  # "python3 (4242)" -> share of the looks; processes not of the run
    others_busy: float | Missing = UNKNOWN  # percent of the card's time
    swap_bytes_s: float | Missing = UNKNOWN
    io_stalled: float | Missing = UNKNOWN
    cpu_percent: float | Missing = UNKNOWN


class Moment(Struct, frozen=True, kw_only=True):
    span: Span
    seen: Seen = field(default_factory=Seen)


def lay_together(spans: Sequence[Span], samples: Sequence[Sample], card: str | None, own: Iterable[int] = ()) -> list[Moment]:
    """`card`: the identity of the one that the run trains on; `own`: processes of the run. Both in the order of time."""
    mine, found, place = frozenset(own), [], 0
    for span in spans:
        while place < len(samples) and samples[place].t <= span.start:
            place += 1
        last = place
        while last < len(samples) and samples[last].t <= span.end:
            last += 1
        inside = samples[place:last] or _beside(samples[max(0, place - 1) : place + 1], span)
        found.append(Moment(span=span, seen=_seen(inside, card, mine)))
        place = last
    return found


def _beside(samples: Sequence[Sample], span: Span) -> Sequence[Sample]:
    """Both come about once a second, and not at the same moments: where no look fell into the span, the nearest one."""
    near = [one for one in samples if span.start - BESIDE_S <= one.t <= span.end + BESIDE_S]
    return sorted(near, key=lambda one: abs(one.t - (span.start + span.end) / 2))[:1]


def _seen(samples: Sequence[Sample], card: str | None, own: frozenset[int]) -> Seen:
    cards = [one for sample in samples if (one := _card(sample, card)) is not None]
    hosts = [sample.host for sample in samples]
    swaps = [_sum(host.swap_in_bytes_s, host.swap_out_bytes_s) for host in hosts]
    return Seen(
        clock_mhz=_mean(one.sm_clock_mhz for one in cards),
        temperature_c=_mean(one.temperature_c for one in cards),
        power_w=_mean(one.power_w for one in cards),
        utilisation=_mean(one.utilisation for one in cards),
        held=_shares([() if isinstance(one.held_by, Missing) or one.idle is True else one.held_by for one in cards]),
        memory_share=_mean(_share(one.memory_used_bytes, one.memory_total_bytes) for one in cards),
        others=_shares([tuple(_others(one, own)) for one in cards]),
        others_busy=_mean(_busy(one, own) for one in cards),
        swap_bytes_s=_mean(swaps),
        io_stalled=_mean(host.io_stalled for host in hosts),
        cpu_percent=_mean(host.cpu_percent for host in hosts),
    )


def _card(sample: Sample, wanted: str | None) -> CardSample | None:
    cards = () if isinstance(sample.cards, Missing) else sample.cards
    return next((card for card in cards if card.uuid == wanted), None)


def _others(card: CardSample, own: frozenset[int]) -> Iterable[str]:
    for one in () if isinstance(card.processes, Missing) else card.processes:
        if one.pid not in own:
            yield f"{one.name if isinstance(one.name, str) else '?'} ({one.pid if isinstance(one.pid, int) else '?'})"


def _busy(card: CardSample, own: frozenset[int]) -> float | Missing:
    if isinstance(card.processes, Missing):
        return card.processes
    shares = [one.busy_percent for one in card.processes if one.pid not in own]
    known = [share for share in shares if isinstance(share, int)]
    return Missing("not-reported") if len(known) < len(shares) else float(sum(known))


def _shares(looks: Sequence[Sequence[str]]) -> dict[str, float]:
    counts: dict[str, int] = {}
    for look in looks:
        for name in set(look):
            counts[name] = counts.get(name, 0) + 1
    return {name: count / len(looks) for name, count in counts.items()}


def _mean(values: Iterable[float | Missing]) -> float | Missing:
    known = [float(value) for value in values if not isinstance(value, Missing)]
    return math.fsum(known) / len(known) if known else UNKNOWN


def _sum(one: float | Missing, other: float | Missing) -> float | Missing:
    if isinstance(one, Missing) or isinstance(other, Missing):
        return one if isinstance(one, Missing) else other
    return one + other


def _share(part: float | Missing, whole: float | Missing) -> float | Missing:
    if isinstance(part, Missing) or isinstance(whole, Missing) or not whole:
        return UNKNOWN
    return part / whole
