"""Why a period was slow: from what changed at the same time, with the share of the lost time. Pure.

Two kinds of causes:

* **accounted**: the step clock gives every nanosecond to one phase, so what waiting for data, validation, checkpoints,
  compiling or garbage collection took longer is known, not inferred;
* **at the same time**: what is left of the steps' own time goes to what changed on the card or the host meanwhile. A lower
  clock explains as much as work bound by the clock would lose, and no more; another process, swapping or a full card explain
  what is then left, each by how it came and went.

What nothing explains stays unexplained: `unseen` is its share, and a stretch without causes says "cause not seen".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

from _flatout_agent.wire import TRAINING_PHASES
from flatout.base.records import Missing, Struct, field
from flatout.watch import stretches
from flatout.watch.doses import Dose, divide
from flatout.watch.moments import Moment, Seen, Span
from flatout.watch.stretches import Stretch

LEAST_SHARE = 0.10  # of the lost time: below, nobody is blamed
LEAST_EXCESS = 0.02  # of a usual step: smaller differences are noise
SURE = 3.0  # standard errors
NEIGHBOURS = 300  # windows before and after that tell what is usual
FEWEST_USUAL = 8
LOWER_CLOCK = 0.97
HELD_MORE = 0.3  # of the looks
IDLER = 15.0  # percent: a card with less to do lowers its clocks by itself
CHANGED = 0.3  # of the windows
SWAPPING_BYTES_S = 1 << 20
STALLED_MORE = 0.1
CPU_FULL, CPU_MORE = 90.0, 15.0
CARD_FULL = 0.97

HEAT = ("SW_THERMAL_SLOWDOWN", "HW_THERMAL_SLOWDOWN")
POWER = ("HW_POWER_BRAKE_SLOWDOWN", "HW_SLOWDOWN", "SW_POWER_CAP")

# The doctor's page on the same fault, where there is one.
CODES = {
    "thermal-slowdown": "AP524",
    "power-slowdown": "AP524",
    "low-clocks": "HW106",
    "waiting-for-data": "AP504",
    "slow-storage": "AP514",
    "cpu-contended": "AP527",
    "host-swapping": "AP525",
    "allocator-retries": "AP526",
}

Plain = str | float | list[str]


class Cause(Struct, frozen=True, kw_only=True):
    name: str
    share: float  # of the time that was lost
    code: str | None = None
    certain: bool = True  # False: another one changed at the same times, and the two cannot be told apart
    evidence: dict[str, Plain] = field(default_factory=dict)


class Slow(Struct, frozen=True, kw_only=True):
    start: float
    end: float
    steps: int
    step_s: float  # with what comes now and then
    usual_step_s: float
    causes: list[Cause] = field(default_factory=list)  # the largest share first; none: cause not seen
    unseen: float = 1.0  # share of the lost time

    @property
    def slower(self) -> float:
        return self.step_s / self.usual_step_s - 1


def slow_stretches(moments: Sequence[Moment]) -> list[Slow]:
    """All of a run so far, in the order of time. The same pattern again and again without a cause is the run's own rhythm."""
    counted = [moment for moment in moments if moment.span.steps]
    found = stretches.find(counted)
    told = [slow for one in _joined(counted, found) if (slow := explain(counted, found, one)) is not None]
    return [slow for slow in told if slow.causes or not _is_rhythm(slow, told)]


def _joined(moments: Sequence[Moment], found: list[Stretch]) -> list[Stretch]:
    """Two that follow each other without a pause and have the same causes are one that changed its strength."""
    kept: list[Stretch] = []
    names: list[str] = []
    for one in found:
        slow = explain(moments, found, one)
        here = [] if slow is None else sorted(cause.name for cause in slow.causes)
        if kept and kept[-1].last == one.first and here == names:
            kept[-1] = Stretch(kept[-1].first, one.last, kept[-1].often or one.often)
        else:
            kept.append(one)
        names = here
    return kept


def _is_rhythm(slow: Slow, all_of_them: Sequence[Slow]) -> bool:
    length = slow.end - slow.start
    alike = [one for one in all_of_them if not one.causes and 0.5 <= (one.end - one.start) / length <= 2]
    return len(alike) >= 3


def explain(moments: Sequence[Moment], found: Sequence[Stretch], one: Stretch) -> Slow | None:
    inside = moments[one.first : one.last]
    usual = [
        moment
        for place, moment in enumerate(moments)
        if one.first - NEIGHBOURS <= place < one.last + NEIGHBOURS
        and not any(stretch.first <= place < stretch.last for stretch in found)
    ]
    if len(usual) < FEWEST_USUAL:
        return None
    account = _Account(inside, usual, one.often or stretches.is_storm([moment.span for moment in moments], one.first, one.last))
    causes = account.causes()
    lost = account.lost_s
    if lost < LEAST_EXCESS * account.usual_step_s:
        return None
    kept = sorted((cause for cause in causes if cause.share >= LEAST_SHARE), key=lambda cause: -cause.share)
    return Slow(
        start=inside[0].span.start,
        end=inside[-1].span.end,
        steps=sum(moment.span.steps for moment in inside),
        step_s=account.usual_step_s + lost,
        usual_step_s=account.usual_step_s,
        causes=kept,
        unseen=max(0.0, 1 - math.fsum(cause.share for cause in kept)),
    )


class _Account:
    """Seconds a step, inside the stretch and usually; how much more each part takes."""

    def __init__(self, inside: Sequence[Moment], usual: Sequence[Moment], often: bool) -> None:
        self.inside, self.usual, self._often = inside, usual, often
        self.usual_step_s = _mean([_per_step(moment.span, _core) for moment in usual])
        self._waiting = self._more(_waiting)
        self._collecting = self._more(_collecting)
        self._compiling = self._more(_compiling)
        self._working = self._more(_working)
        self._checkpoint = self._more(lambda span: span.phases.get("checkpoint", 0.0)) if often else 0.0
        self._validation = self._more(lambda span: span.phases.get("validation", 0.0)) if often else 0.0
        parts = (
            self._waiting,
            self._collecting,
            self._compiling,
            self._working,
            self._checkpoint,
            self._validation,
        )
        self.lost_s = math.fsum(parts)

    def _more(self, part: Callable[[Span], float]) -> float:
        """What this part takes longer in the stretch, a step; 0 where that is no more than noise."""
        now = [_per_step(moment.span, part) for moment in self.inside]
        before = [_per_step(moment.span, part) for moment in self.usual]
        more = _mean(now) - _mean(before)
        error = math.hypot(_spread(now) / math.sqrt(len(now)), _spread(before) / math.sqrt(len(before)))
        return more if more > max(LEAST_EXCESS * self.usual_step_s, SURE * error) else 0.0

    # -- causes ------------------------------------------------------------------------------------------------------------

    def causes(self) -> list[Cause]:
        if self.lost_s <= 0:
            return []
        found = [
            self._cause("garbage-collection", self._collecting),
            self._cause("compiling", self._compiling),
            self._cause("checkpoint", self._checkpoint, count=self._events("checkpoint")),
            self._cause("validation", self._validation, count=self._events("validation")),
        ]
        clock = self._clock()
        found.append(clock)
        left = self._working - (clock.share * self.lost_s if clock else 0.0)
        if left < LEAST_EXCESS * self.usual_step_s:
            left = 0.0
        swapping = self._dose("host-swapping", _swapping)
        found += self._shared(left, swapping)
        found.append(self._data(swapping))
        return _added_up([cause for cause in found if cause is not None and cause.share > 0])

    def _cause(self, name: str, seconds: float, certain: bool = True, **evidence: Plain | Missing | None) -> Cause | None:
        if seconds <= 0:
            return None
        known: dict[str, Plain] = {
            key: value for key, value in evidence.items() if value is not None and not isinstance(value, Missing)
        }
        known["lost_s_a_step"] = seconds
        return Cause(name=name, share=seconds / self.lost_s, code=CODES.get(name), certain=certain, evidence=known)

    def _events(self, phase: str) -> float:
        return float(sum(moment.span.phases.get(phase, 0.0) > 0 for moment in self.inside))

    def _clock(self) -> Cause | None:
        now, before = self._seen(self.inside, "clock_mhz"), self._seen(self.usual, "clock_mhz")
        if now is None or not before or now >= LOWER_CLOCK * before or now <= 0:
            return None
        heat, power = self._held_more(HEAT), self._held_more(POWER)
        busy, busy_before = self._seen(self.inside, "utilisation"), self._seen(self.usual, "utilisation")
        idler = busy is not None and busy_before is not None and busy < busy_before - IDLER
        if idler and not heat and not power:
            return None  # the card had less to do: its clock is a consequence
        name = "thermal-slowdown" if heat else "power-slowdown" if power else "low-clocks"
        usually = _mean([_per_step(moment.span, _working) for moment in self.usual])
        explained = min(self._working, usually * (before / now - 1))
        return self._cause(
            name,
            explained,
            reasons=(heat or power) or None,
            clock_mhz=now,
            usual_clock_mhz=before,
            temperature_c=self._seen(self.inside, "temperature_c"),
            power_w=self._seen(self.inside, "power_w"),
        )

    def _held_more(self, names: Sequence[str]) -> list[str]:
        def share(moments: Sequence[Moment], name: str) -> float:
            return _mean([moment.seen.held.get(name, 0.0) for moment in moments])

        return [name for name in names if share(self.inside, name) >= share(self.usual, name) + HELD_MORE]

    def _shared(self, seconds: float, swapping: Dose | None) -> list[Cause | None]:
        """What is left of the steps' own time, among those that came at the same time."""
        doses = [
            self._others(),
            swapping,
            self._dose("allocator-retries", lambda moment: moment.span.retries / moment.span.steps),
            self._dose("memory-full", lambda moment: _above(moment.seen.memory_share, CARD_FULL)),
        ]
        if not any(dose is not None for dose in doses):
            doses.append(self._cpu())
        active = [dose for dose in doses if dose is not None]
        if seconds <= 0 or not active:
            return []
        work = [_per_step(moment.span, _working) for moment in (*self.usual, *self.inside)]
        parts, told_apart = divide(seconds, work, active, len(self.usual))
        return [
            self._cause(dose.name, part, told_apart or len(active) == 1, **dose.evidence)
            for dose, part in zip(active, parts, strict=True)
        ]

    def _data(self, swapping: Dose | None) -> Cause | None:
        """Waiting for data, and what kept the data back where that is seen."""
        if swapping is not None:
            return self._cause("host-swapping", self._waiting, **swapping.evidence)
        stalled, before = self._seen(self.inside, "io_stalled"), self._seen(self.usual, "io_stalled")
        if stalled is not None and before is not None and stalled >= before + STALLED_MORE:
            return self._cause("slow-storage", self._waiting, io_stalled=stalled, usual_io_stalled=before)
        contended = self._cpu()
        if contended is not None:
            return self._cause("cpu-contended", self._waiting, **contended.evidence)
        return self._cause("waiting-for-data", self._waiting)

    def _others(self) -> Dose | None:
        """Processes that came, or do more than they did; who was there before and does what it did is no cause."""
        usual = {name for name, share in _average_shares(self.usual).items() if share >= CHANGED}
        new = sorted(name for name, share in _average_shares(self.inside).items() if share >= CHANGED and name not in usual)
        busy = self._dose("another-process", lambda moment: _value(moment.seen.others_busy) / 100)
        if busy is not None:
            now = self._seen(self.inside, "others_busy")
            return Dose(busy.name, busy.values, {"busy_percent": now or 0.0, **({"processes": list(new)} if new else {})})
        if not new or self._seen(self.inside, "others_busy") is not None:
            return None  # it holds memory, and does nothing
        there = self._dose("another-process", lambda moment: max(moment.seen.others.get(name, 0.0) for name in new))
        return None if there is None else Dose(there.name, there.values, {"processes": list(new)})

    def _cpu(self) -> Dose | None:
        now, before = self._seen(self.inside, "cpu_percent"), self._seen(self.usual, "cpu_percent")
        if now is None or before is None or now < CPU_FULL or now < before + CPU_MORE:
            return None
        found = self._dose("cpu-contended", lambda moment: _value(moment.seen.cpu_percent) / 100)
        return None if found is None else Dose(found.name, found.values, {"cpu_percent": now, "usual_cpu_percent": before})

    def _dose(self, name: str, of: Callable[[Moment], float]) -> Dose | None:
        """How much of it there was in each window; None where it did not come with the stretch."""
        before, now = [of(moment) for moment in self.usual], [of(moment) for moment in self.inside]
        level, typical = _mean(before), _mean(now)
        if typical <= 0 or typical < 2 * level or typical - level < SMALLEST.get(name, 0.0):
            return None
        half = (level + typical) / 2
        there = sum(value > half for value in now) / len(now)
        if there < CHANGED or sum(value > half for value in before) / len(before) > CHANGED / 2:
            return None
        return Dose(name, [max(0.0, value - level) for value in (*before, *now)], {EVIDENCE.get(name, "amount"): typical})

    def _seen(self, moments: Sequence[Moment], name: str) -> float | None:
        values = [value for moment in moments if isinstance(value := getattr(moment.seen, name), int | float)]
        return _mean([float(value) for value in values]) if 2 * len(values) >= len(moments) else None


SMALLEST = {"another-process": 0.1, "host-swapping": 1.0}
EVIDENCE = {"host-swapping": "swapped_mib_s", "allocator-retries": "retries_a_step", "memory-full": "windows_full"}


# -- parts of a step --------------------------------------------------------------------------------------------------------


def _core(span: Span) -> float:
    return span.training_s + _compiling(span)


def _waiting(span: Span) -> float:
    return span.phases.get("input", 0.0)


def _collecting(span: Span) -> float:
    return span.gc_s if isinstance(span.gc_s, float) else 0.0


def _compiling(span: Span) -> float:
    return span.phases.get("compile", 0.0)


def _working(span: Span) -> float:
    """All else that comes with every step; collections happen inside it."""
    others = math.fsum(span.phases.get(name, 0.0) for name in TRAINING_PHASES if name != "input")
    return max(0.0, others - span.outside_s - _collecting(span))


def _per_step(span: Span, part: Callable[[Span], float]) -> float:
    return part(span) / max(1, span.steps)


def _swapping(moment: Moment) -> float:
    return _value(moment.seen.swap_bytes_s) / SWAPPING_BYTES_S


def _value(value: float | Missing) -> float:
    return 0.0 if isinstance(value, Missing) else float(value)


def _above(value: float | Missing, limit: float) -> float:
    return float(not isinstance(value, Missing) and value >= limit)


def _average_shares(moments: Sequence[Moment]) -> dict[str, float]:
    looked: list[Seen] = [moment.seen for moment in moments]
    names = {name for seen in looked for name in seen.others}
    return {name: _mean([seen.others.get(name, 0.0) for seen in looked]) for name in names}


def _added_up(causes: list[Cause]) -> list[Cause]:
    """Swapping may hold up the work and the data."""
    found: dict[str, Cause] = {}
    for cause in causes:
        before = found.get(cause.name)
        if before is not None:
            evidence = {**cause.evidence, **before.evidence}
            cause = Cause(
                name=cause.name,
                share=cause.share + before.share,
                code=cause.code,
                certain=cause.certain and before.certain,
                evidence=evidence,
            )
        found[cause.name] = cause
    return list(found.values())


def _mean(values: Sequence[float]) -> float:
    """Without the odd window: the middle nine tenths."""
    cut = len(values) // 20
    kept = sorted(values)[cut : len(values) - cut] if cut else values
    return math.fsum(kept) / len(kept) if kept else 0.0


def _spread(values: Sequence[float]) -> float:
    middle = median(values)
    return 1.4826 * median(abs(value - middle) for value in values)
