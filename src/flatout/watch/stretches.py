"""Finds slow periods of a training: change points of its step time against its usual step time.

Only what begins suddenly counts: a slow drift has no moment that something else could have changed at, and a run's noise, its
evaluations and its rhythm must never be called slow. Two looks:

* what comes with every step (without validation, checkpoints and turns of the epoch): the logarithm of its time, cut where its
  level changes, by the narrowest of many intervals that shows it (Baranowski, Chen and Fryzlewicz's narrowest over threshold,
  on the intervals of seeded binary segmentation);
* validation and checkpoints: a stretch that holds far more of them than any other stretch of the same length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from flatout.base.records import Struct
from flatout.watch.moments import NOW_AND_THEN, Moment, Span

FEWEST = 5  # windows in a stretch: a single slow second is nothing
LEAST_SLOWER = math.log(1.10)
LEAST_CHANGE = 0.04  # of the level, between two parts that are told apart
SURE = 5.0  # standard errors, …
MEMORY_OF_NOISE = 2.0  # … as if of a noise that remembers half of what it was a second before
USUAL = 0.3  # of the time is at this level or faster: a run may be slow for most of the time that was watched
SUDDEN = 0.5  # of the change lies within …
BESIDE = 8  # … so many windows of its beginning
BESIDE_FEWEST = 4

FEWEST_EVENTS = 4
MORE_OFTEN = 1.5  # than in any other stretch of the same length
LEAST_MORE = 0.10  # of the time
MOST_STORMS = 3


class Stretch(Struct, frozen=True):
    first: int  # index of a moment
    last: int  # the one after it
    often: bool = False  # by validation or checkpoints that come more often


def find(moments: Sequence[Moment]) -> list[Stretch]:
    """In the order of time, without overlaps."""
    spans = [moment.span for moment in moments]
    if len(spans) < 2 * FEWEST or any(not span.steps for span in spans):
        return []
    return _united([*_slow_steps(spans), *_storms(spans)])


def _united(found: list[Stretch]) -> list[Stretch]:
    """One that lies in another, mostly, is the same stretch."""
    kept: list[Stretch] = []
    for one in sorted(found, key=lambda stretch: (stretch.first, -stretch.last)):
        before = kept[-1] if kept else None
        if before is None or one.first >= before.last:
            kept.append(one)
            continue
        overlap = min(one.last, before.last) - one.first
        if 2 * overlap >= min(one.last - one.first, before.last - before.first):
            kept[-1] = Stretch(before.first, max(one.last, before.last), one.often or before.often)
        else:
            kept.append(Stretch(before.last, one.last, one.often))
    return kept


# -- what comes with every step -------------------------------------------------------------------------------------------


def _slow_steps(spans: Sequence[Span]) -> list[Stretch]:
    times = [math.log(max(_with_every_step(span), 1e-9) / span.steps) for span in spans]
    edges = [0, *change_points(times), len(times)]
    parts = [(first, last, median(times[first:last])) for first, last in pairwise(edges)]
    usual = _usual([(level, math.fsum(spans[i].end - spans[i].start for i in range(a, b))) for a, b, level in parts])
    found: list[Stretch] = []
    sudden = False
    for number, (first, last, level) in enumerate(parts):
        if level - usual < LEAST_SLOWER:
            sudden = False
            continue
        # Of slow parts one after the other the first must begin suddenly; what it began with is not seen at the very start.
        sudden = sudden or (number > 0 and _is_sudden(times, first, level - parts[number - 1][2]))
        if sudden and last - first >= FEWEST:
            found.append(Stretch(first, last))
    return found


def _with_every_step(span: Span) -> float:
    """Compiling, too: once is a spike, and again and again is a fault."""
    return span.training_s + span.phases.get("compile", 0.0)


def _usual(levels: list[tuple[float, float]]) -> float:
    ordered, passed = sorted(levels), 0.0
    whole = math.fsum(seconds for _, seconds in ordered)
    for level, seconds in ordered:
        passed += seconds
        if passed >= USUAL * whole:
            return level
    return ordered[-1][0]


def _is_sudden(times: Sequence[float], place: int, change: float) -> bool:
    before, after = times[max(0, place - BESIDE) : place], times[place : place + BESIDE]
    if min(len(before), len(after)) < BESIDE_FEWEST:
        return False
    jump = median(after) - median(before)
    return jump >= max(SUDDEN * change, SUDDEN * LEAST_SLOWER)


def change_points(values: Sequence[float]) -> list[int]:
    """Where the level of a series changes: indices of the first value after each change."""
    smooth = _without_spikes(values)
    noise = MEMORY_OF_NOISE * _noise(values)
    sums = [0.0]
    for value in smooth:
        sums.append(sums[-1] + value)
    shown = []
    for first, last in _intervals(len(values)):
        place, change = _best_split(sums, first, last)
        error = noise * math.sqrt(1 / (place - first) + 1 / (last - place))
        if abs(change) >= max(LEAST_CHANGE, SURE * error):
            shown.append((last - first, -abs(change), place, first, last))
    found: list[int] = []
    for _, _, place, first, last in sorted(shown):
        if not any(first < other < last or abs(place - other) < FEWEST for other in found):
            found.append(place)
    return _tidied(values, sums, sorted(found))


def _tidied(values: Sequence[float], sums: Sequence[float], found: list[int]) -> list[int]:
    """Each where it splits best between its neighbours, for the intervals have gaps; and none without a change of its own."""
    while True:
        edges = [0, *found, len(values)]
        for number in range(1, len(edges) - 1):
            first, last = edges[number - 1], edges[number + 1]
            if last - first >= 2 * FEWEST:
                edges[number], _ = _best_split(sums, first, last)
        found = edges[1:-1]
        levels = [median(values[first:last]) for first, last in pairwise(edges)]
        changes = [abs(after - before) for before, after in pairwise(levels)]
        if not changes or min(changes) >= LEAST_CHANGE:
            return found
        found.pop(changes.index(min(changes)))


def _intervals(length: int) -> list[tuple[int, int]]:
    found, size = [], 2 * FEWEST
    while size < length:
        step = max(1, size // 4)
        found += [(first, first + size) for first in range(0, length - size + 1, step)]
        size = max(size + 1, int(size * 1.4))
    return [*found, (0, length)]


def _best_split(sums: Sequence[float], first: int, last: int) -> tuple[int, float]:
    best, at, by = -1.0, first + FEWEST, 0.0
    for place in range(first + FEWEST, last - FEWEST + 1):
        before, after = place - first, last - place
        change = (sums[last] - sums[place]) / after - (sums[place] - sums[first]) / before
        weight = change * change * before * after
        if weight > best:
            best, at, by = weight, place, change
    return at, by


def _without_spikes(values: Sequence[float]) -> list[float]:
    return [median(values[max(0, i - 2) : i + 3]) for i in range(len(values))]


def _noise(values: Sequence[float]) -> float:
    """Standard deviation about the level that the neighbours have."""
    wide = [median(values[max(0, i - 10) : i + 11]) for i in range(len(values))]
    return 1.4826 * median(abs(value - level) for value, level in zip(values, wide, strict=True))


# -- validation and checkpoints -------------------------------------------------------------------------------------------


def _storms(spans: Sequence[Span]) -> list[Stretch]:
    extra = [now_and_then(span) for span in spans]
    lengths = [span.end - span.start for span in spans]
    whole = math.fsum(lengths)
    if whole <= 0:
        return []
    threshold = math.fsum(extra) / whole + LEAST_MORE
    scores = [more - threshold * length for more, length in zip(extra, lengths, strict=True)]
    found: list[Stretch] = []
    for _ in range(MOST_STORMS):
        first, last = _largest_sum(scores)
        if last - first < FEWEST_EVENTS or not is_storm(spans, first, last):
            break
        found.append(Stretch(first, last, often=True))
        scores[first:last] = [-math.inf] * (last - first)
    return found


def now_and_then(span: Span) -> float:
    return math.fsum(span.phases.get(name, 0.0) for name in NOW_AND_THEN)


def is_storm(spans: Sequence[Span], first: int, last: int) -> bool:
    """Whether validation and checkpoints take more of this stretch than of any other of its length."""
    inside = spans[first:last]
    events = sum(now_and_then(span) > 0.02 * (span.end - span.start) for span in inside)
    length = math.fsum(span.end - span.start for span in inside)
    if events < FEWEST_EVENTS or first < FEWEST:  # what it began with is not seen
        return False
    rate = math.fsum(map(now_and_then, inside)) / length
    outside = max(_highest_rate(spans[:first], length), _highest_rate(spans[last:], length))
    return rate >= MORE_OFTEN * outside and rate >= outside + LEAST_MORE


def _highest_rate(spans: Sequence[Span], length: float) -> float:
    """Of any stretch about as long; of one that is shorter, spread over that length."""
    highest, first, spent, passed = 0.0, 0, 0.0, 0.0
    for span in spans:
        spent += now_and_then(span)
        passed += span.end - span.start
        while passed - (spans[first].end - spans[first].start) >= length:
            spent -= now_and_then(spans[first])
            passed -= spans[first].end - spans[first].start
            first += 1
        highest = max(highest, spent / max(length, passed))
    return highest


def _largest_sum(scores: Sequence[float]) -> tuple[int, int]:
    best, at, total, first = 0.0, (0, 0), 0.0, 0
    for place, score in enumerate(scores):
        if total <= 0:
            total, first = 0.0, place
        total += score
        if total > best:
            best, at = total, (first, place + 1)
    return at
