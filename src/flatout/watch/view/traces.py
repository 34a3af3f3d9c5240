"""Figures over time, as plots show them: bounded, so that a day takes no more room than its first hours."""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from flatout.base.records import Missing, replace
from flatout.machine.telemetry import Sample
from flatout.watch.moments import Span

OF_CARDS = ("utilisation", "memory_used_bytes", "temperature_c", "power_w", "sm_clock_mhz")
OF_THE_HOST = ("cpu_percent", "memory_used_bytes", "disk_read_bytes_s", "net_received_bytes_s")

FINE_KEPT, COARSE_KEPT = 900, 4320  # looks: a quarter of an hour each second, half a day every ten
ALL = 1 << 40
COARSE_S = 10.0
LONGEST_BUCKET_S = 301.0  # of the history
ONCE = ("startup", "settings", "put-on", "shutdown")  # no part of a step
COVERS_S = 3.0  # a look stands for the time since the one before, and for no more than this


def card_key(index: int, figure: str) -> str:
    return f"card.{index}.{figure}"


class Ring:
    """Rows in the order of time; a figure that was not given is NaN, and never 0."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self.times = array("d")
        self.columns: dict[str, array[float]] = {}

    def add(self, t: float, values: Mapping[str, float]) -> None:
        if self.times and t <= self.times[-1]:
            return
        for name in values.keys() - self.columns.keys():
            self.columns[name] = array("f", [math.nan]) * len(self.times)
        self.times.append(t)
        for name, column in self.columns.items():
            column.append(values.get(name, math.nan))
        if len(self.times) > self._kept + self._kept // 4:  # not at every look: each cut moves the rest
            cut = len(self.times) - self._kept
            del self.times[:cut]
            for column in self.columns.values():
                del column[:cut]

    def binned(self, name: str, start: float, end: float, columns: int, covers: float) -> list[float | None]:
        """The mean in each of so many columns; None where nothing was given."""
        values = self.columns.get(name)
        if values is None or columns <= 0:
            return [None] * max(0, columns)
        width, found = (end - start) / columns, []
        for column in range(columns):
            first, last = start + column * width, start + (column + 1) * width
            found.append(self._mean(values, first, last, covers))
        return found

    def _mean(self, values: array[float], first: float, last: float, covers: float) -> float | None:
        low, high = bisect_right(self.times, first), bisect_right(self.times, last)
        if low == high:  # between two looks: the later one tells of the time since the earlier
            reaches = high < len(self.times) and self.times[high] - self._covered(high, covers) < last
            high += reaches
        known = [value for value in values[low:high] if not math.isnan(value)]
        return math.fsum(known) / len(known) if known else None

    def _covered(self, place: int, covers: float) -> float:
        return min(covers, self.times[place] - self.times[place - 1]) if place else min(covers, COVERS_S)


class Traces:
    """Written by whoever samples and read by whoever draws, which may be two threads."""

    def __init__(self, whole: bool = False) -> None:
        """`whole`: of a run that has ended; nothing is left out, and what was kept may lie minutes apart."""
        self._lock, self._whole = threading.Lock(), whole
        self._fine, self._coarse = Ring(ALL if whole else FINE_KEPT), Ring(COARSE_KEPT)
        self._run = Ring(self._run_kept)
        self._bucket: tuple[int, dict[str, list[float]]] = (0, {})
        self._run_id = ""

    def begin_with(self, kept: Sequence[Sample], now: Sample) -> None:
        """What the history holds of the last minutes. Its cards have no numbers: they are those that are there now."""
        cards = () if isinstance(now.cards, Missing) else now.cards
        numbers = {card.uuid: card.index for card in cards}
        for sample in kept:
            here = () if isinstance(sample.cards, Missing) else sample.cards
            known = tuple(replace(card, index=numbers[card.uuid]) for card in here if card.uuid in numbers)
            if sample.t < now.t:
                self.add(replace(sample, cards=known))

    def add(self, sample: Sample) -> None:
        values = {name: float(value) for name, value in _figures(sample).items() if not isinstance(value, Missing)}
        with self._lock:
            self._fine.add(sample.t, values)
            number, gathered = self._bucket
            now = int(sample.t // COARSE_S)
            if now != number and gathered:
                self._coarse.add((number + 1) * COARSE_S, {name: math.fsum(of) / len(of) for name, of in gathered.items()})
                gathered = {}
            for name, value in values.items():
                gathered.setdefault(name, []).append(value)
            self._bucket = (now, gathered)

    def add_spans(self, run_id: str, spans: Sequence[Span]) -> None:
        """All that is known of the run: what was there before is left out. Another run begins anew."""
        with self._lock:
            if run_id != self._run_id:
                self._run, self._run_id = Ring(self._run_kept), run_id
            if spans and not self._run.times:
                self._run.add(spans[0].start, {})  # a span stands for the time since it began
            last = self._run.times[-1] if self._run.times else -math.inf
            for span in spans[bisect_right(spans, last, key=lambda one: one.end) :]:
                self._run.add(span.end, _of_span(span))

    def window(self, name: str, end: float, length: float, columns: int) -> list[float | None]:
        with self._lock:
            if name.startswith("run."):
                return self._run.binned(name, end - length, end, columns, math.inf)
            if length <= FINE_KEPT or self._whole:
                return self._fine.binned(name, end - length, end, columns, LONGEST_BUCKET_S if self._whole else COVERS_S)
            return self._coarse.binned(name, end - length, end, columns, 2.5 * COARSE_S)

    @property
    def _run_kept(self) -> int:
        return ALL if self._whole else COARSE_KEPT

    def names(self) -> set[str]:
        with self._lock:
            return set(self._fine.columns) | set(self._run.columns)

    def began(self) -> float | None:
        """When the first of the looks was that are still kept."""
        with self._lock:
            starts = [ring.times[0] for ring in (self._fine, self._coarse) if ring.times]
            return min(starts, default=None)


def _figures(sample: Sample) -> dict[str, float | Missing]:
    found: dict[str, float | Missing] = {f"host.{name}": getattr(sample.host, name) for name in OF_THE_HOST}
    for card in () if isinstance(sample.cards, Missing) else sample.cards:
        found.update({card_key(card.index, name): getattr(card, name) for name in OF_CARDS})
    return found


def _of_span(span: Span) -> dict[str, float]:
    length = span.end - span.start
    found = {}
    once = math.fsum(span.phases.get(name, 0.0) for name in ONCE)
    if span.steps:
        found["run.step_s"] = max(0.0, length - once) / span.steps
    if span.samples and span.training_s > 0:
        found["run.samples_per_s"] = span.samples / span.training_s
    if length > 0:
        found["run.input_share"] = 100 * span.phases.get("input", 0.0) / length
    if not isinstance(span.loss, Missing):
        found["run.loss"] = span.loss
    return found
