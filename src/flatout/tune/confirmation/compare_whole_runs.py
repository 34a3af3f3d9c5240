"""Before a profile is written: plain and tuned, each as `flatout run` runs it, in turn, and what the user's whole run gains.

A run that fits its share of the time goes to the script's end. A longer one is ended early in both arms: its epoch after some
seconds, the process after the turn; the whole run is then put together from its parts. Where the tuned runs are not faster
beyond doubt, settings are left out by the part in which the time is lost, and the rest is confirmed by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from flatout.base.records import Missing, Struct, field, replace
from flatout.launch.compiled import NOTHING_BUILT
from flatout.measure import promise
from flatout.measure.promise import Measured, Ratio
from flatout.tune.confirmation.whole_run_promise import Arms, Confirmed, building_of, code_of, judged, plain_pace
from flatout.tune.search.questions_and_answers import Values
from flatout.tune.search.run_length import RunLength
from flatout.tune.search.time_budget import LOOP_S, Costs

FITS = 0.55  # of the time that is left: so long may the plain run be, and the pair still fit
CUT = 0.6  # of the time for a run's loop passes before its epoch is cut short
LEAST_STEPS, SLOW_LOOP_S = 10, 9.0  # that time holds so many plain steps, or of slow ones so many seconds
STOP = 2.5  # times that time: a validation may be long
SLOWER = 1.2  # than foreseen: what a loop with slow steps takes
KILL_STARTS, KILL_STOPS, KILL_MORE_S = 4.0, 2.0, 30.0  # what has not ended then is ended
PAIRS, MOST_PAIRS = 2, 4
COSTS_ONCE = ("compile", "cudnn_benchmark")  # left out in this order
OF_THE_LOADER = ("workers", "persistent_workers", "prefetch_factor", "pin_memory")  # together
AT_THE_TURN = ("turns", "exit")  # where these cost
TOO_FEW = "too-few-steps"  # in a run's time: nothing against its settings
AGAIN = 0.5  # of a build, once the compiler has kept what it built

# Knobs, what a plain step and turn took (for a tuned run, as its profile will say), until, when it is killed.
Run = Callable[[Values, dict[str, float], dict[str, float], float], "Measured | Missing"]
Told = Callable[[int, bool], None]  # the number of the run that begins, and whether it is a tuned one


class Once(Struct, frozen=True, kw_only=True):
    """A setting that is compiled, as the search saw it."""

    build_s: float  # with whatever the compiler had kept then
    gain: float | None  # of the loop, beside what else is kept; None where that is not known


class Known(Struct, frozen=True, kw_only=True):
    """What search and earlier runs tell a confirmation."""

    kept: list[float] = field(default_factory=list)  # delivered ÷ promised of earlier runs of this command under a profile
    once: dict[str, Once] = field(default_factory=dict)  # what is compiled
    gains: dict[str, float] = field(default_factory=dict)  # what each setting gave in the search
    undecided: list[str] = field(default_factory=list)  # settings that these runs are to decide: others do not suffer for them
    time_may_grow: bool = False  # nobody asked for a limit: one plain run more may come


class Confirmation:
    """`now` and `run` are the machine; all decisions follow from what they give."""

    def __init__(
        self, run: Run, now: Callable[[], float], told: Told = lambda number, tuned: None, known: Known | None = None
    ) -> None:
        self._known = known or Known()
        self._run = run
        self._now = now
        self._told = told
        self._number = 0
        self._longest_s = {False: 0.0, True: 0.0}  # of a plain and of a tuned run
        self._until: dict[str, float] = {}
        self._longest_run_s = 0.0
        self._loop_s = 0.0  # of a run that is not cut: until it has settled, and what is timed

    def confirm(self, knobs: Values, room_s: float, costs: Costs, length: RunLength | None, loop: Ratio | None,
                plain_s: float | None = None) -> Confirmed:  # fmt: skip
        """`loop`: of the search's last comparison; `plain_s`: of the whole plain run, as foreseen."""
        if room_s < costs.pair_s:
            return Confirmed(code="no-time", knobs=knobs)
        ends = self._now() + room_s
        fits = plain_s is not None and plain_s <= FITS * room_s
        least_s = max(LOOP_S, min(LEAST_STEPS * costs.step_s, SLOW_LOOP_S))
        loop_s = max(least_s, (FITS * room_s if fits else room_s / (2 * PAIRS)) - costs.start_s)
        stop_s = max(STOP * loop_s, SLOWER * costs.loop_s)
        self._until = {"cut_s": loop_s if fits else CUT * loop_s, "stop_s": stop_s}
        self._longest_run_s = KILL_STARTS * costs.start_s + KILL_STOPS * stop_s + KILL_MORE_S
        self._loop_s = costs.loop_s
        arms = Arms(kept=compiled(knobs))
        failed = self._pairs(arms, knobs, ends, lambda: _ratio(arms, length, loop), lambda: _slower(arms, length, loop))
        if failed is not None:
            return self._without_undecided(arms, failed, knobs, ends, length)
        if not arms.pairs:
            return Confirmed(code="no-time", knobs=knobs)  # to compare with a plain run that found as much in memory
        told = self._judged(arms, knobs, length, loop)
        if told.code != "confirmed":
            undecided = tuple(name for name in self._known.undecided if name in told.knobs)
            return self._with_less(arms, told, ends, length, [undecided, *suspects(told, self._known.gains)])
        dear = self._not_repaid(told)
        return self._with_less(arms, told, ends, length, [(dear,)]) if dear else told

    def _pairs(
        self, arms: Arms, knobs: Values, ends: float, ratio: Callable[[], Ratio | Missing], slower: Callable[[], bool]
    ) -> tuple[Missing, bool] | None:
        """Plain, tuned, tuned, plain … until it is decided, or the time is over; why it failed, if it did."""
        for place in range(2 * MOST_PAIRS):
            tuned = bool(arms.plain) and place % 4 in (1, 2)
            can_stop = arms.pairs >= 1 or (arms.cold_bytes and not self._known.time_may_grow)
            if can_stop and self._now() + self._expected_s(arms, tuned) > ends:
                break
            if place % 2 == 0 and arms.pairs and self._enough(arms, ends, ratio(), len(knobs) > 1, slower):
                break
            found = self._one(knobs if tuned else {}, tuned, arms, ends)
            if isinstance(found, Missing) and not arms.plain and not arms.cold_bytes and self._cut_may_be_why(found):
                found = self._one({}, False, arms, ends)
            if isinstance(found, Missing):
                return None if arms.pairs >= 1 and (not tuned or found.reason == TOO_FEW) else (found, tuned)
            (arms.tuned if tuned else arms.plain).append(found)
            arms.leave_out_cold()
            if (tuned or arms.cold_bytes) and arms.plain and arms.only_tuned_ended:
                self._plain_to_its_end(arms, ends)
        return None

    def _plain_to_its_end(self, arms: Arms, ends: float) -> None:
        """A tuned run came to its end where the plain one was ended before: this once more, if there is time for all of it."""
        seen = judged(arms, {}, None, None)
        if seen.plain is None or seen.epochs is None:
            return
        whole_s = SLOWER * promise.total(seen.plain, seen.epochs).value
        if self._now() + whole_s > ends:
            return
        before, self._until = self._until, {"cut_s": whole_s, "stop_s": max(whole_s, self._until["stop_s"])}
        longest_s, self._longest_run_s = self._longest_run_s, max(self._longest_run_s, KILL_STOPS * whole_s + KILL_MORE_S)
        found = self._one({}, False, arms, ends)
        if isinstance(found, Missing) or not found.whole:
            self._until, self._longest_run_s = before, longest_s
        else:
            arms.plain[:] = [found]

    def _cut_may_be_why(self, found: Missing) -> bool:
        """A plain script that draws as many batches as it has counted does not bear that its epoch ends early: no epoch is cut
        from then on, and the runs end in the midst of one."""
        cut_s = self._until["cut_s"]
        if found.reason != "failed" or self._longest_s[False] < cut_s:
            return False
        self._until = {"cut_s": max(cut_s, self._loop_s), "stop_s": max(cut_s, self._loop_s)}
        return True

    def _enough(self, arms: Arms, ends: float, ratio: Ratio | Missing, divisible: bool, slower: Callable[[], bool]) -> bool:
        """It is decided; or it looks slower, and the time that is left is needed to find out which setting it is."""
        if divisible and slower():
            return True
        if arms.pairs >= PAIRS and code_of(ratio) != "unclear":
            return True
        pair_s = self._expected_s(arms, False) + self._expected_s(arms, True)
        behind = divisible and isinstance(ratio, Ratio) and ratio.value < 1
        return behind and self._now() + pair_s + self._longest_s[True] > ends

    def _expected_s(self, arms: Arms, tuned: bool) -> float:
        """Of the next such run."""
        built_s = arms.first_building_s if tuned and len(arms.tuned) == 1 else None
        return self._longest_s[tuned] - (1 - AGAIN) * (built_s or 0.0)

    def _one(self, knobs: Values, tuned: bool, arms: Arms, ends: float) -> Measured | Missing:
        """Once more, where the run took a setting back and there is time: until then it ran with it."""
        found = self._ran(knobs, tuned, arms)
        if isinstance(found, Missing) or not found.taken_back or self._now() + self._expected_s(arms, tuned) > ends:
            return found
        again = self._ran(knobs, tuned, arms)
        return found if isinstance(again, Missing) and again.reason == TOO_FEW else again

    def _ran(self, knobs: Values, tuned: bool, arms: Arms) -> Measured | Missing:
        self._number += 1
        self._told(self._number, tuned)
        began = self._now()
        plain = plain_pace(arms.plain) if tuned and "batch_size" not in knobs else {}
        build_s = sum(seen.build_s for name, seen in self._known.once.items() if name in knobs)
        until = {**self._until, "stop_s": self._until["stop_s"] + build_s}
        found = self._run(knobs, plain, until, self._longest_run_s + KILL_STOPS * build_s)
        self._longest_s[tuned] = max(self._longest_s[tuned], self._now() - began)
        return found

    def _judged(
        self, arms: Arms, knobs: Values, length: RunLength | None, loop: Ratio | None, left_out: Values | None = None
    ) -> Confirmed:
        told = judged(arms, knobs, length, loop, left_out)
        if isinstance(told.ratio, Missing):
            return told
        # Decided by these runs. What earlier promises were missed by is told, and is no reason against what is faster today.
        ratio = promise.widened(told.ratio, self._known.kept)
        cold_s = sum(seen.build_s for name, seen in self._known.once.items() if name in knobs)
        return replace(told, ratio=ratio, building=building_of(arms, cold_s))

    def _not_repaid(self, told: Confirmed) -> str | None:
        """What is compiled and costs more than this run gains by it, at the price that was seen here last."""
        plain, tuned, epochs = told.plain, told.tuned, told.epochs
        if plain is None or tuned is None or epochs is None:
            return None
        built_s = tuned.once["building"].value - plain.once["building"].value
        steps_s = epochs * tuned.each["steps"].value
        gains = {name: seen.gain for name, seen in self._known.once.items() if name in told.knobs and seen.gain is not None}
        return next((name for name, gain in gains.items() if built_s > (gain - 1) * steps_s), None)

    def _without_undecided(
        self, arms: Arms, failed: tuple[Missing, bool], knobs: Values, ends: float, length: RunLength | None
    ) -> Confirmed:
        """A tuned run failed: what was shown in the search, without what was not."""
        found, tuned = failed
        less = {name: value for name, value in knobs.items() if name not in self._known.undecided}
        if tuned and arms.plain and less and len(less) < len(knobs):
            others = Arms(plain=arms.plain, kept=compiled(less), cold_bytes=arms.cold_bytes)
            told = self._rest(others, less, length, (ends, self._longest_s[False], 0.0))
            if isinstance(told, Confirmed):
                return replace(told, unconfirmed={name: knobs[name] for name in knobs.keys() - less.keys()})
        return _failed(found, tuned, knobs)

    def _with_less(
        self, arms: Arms, before: Confirmed, ends: float, length: RunLength | None, groups: Sequence[Sequence[str]]
    ) -> Confirmed:
        """Without some of its settings, one group after the other, as long as there is time for a run; what was confirmed with
        them stays unless it is faster without. What makes it no faster to leave it out comes back."""
        knobs, best = dict(before.knobs), before
        for group in groups:
            less = {name: value for name, value in knobs.items() if name not in group}
            if not less or len(less) == len(knobs):  # also where the group is empty
                continue
            built = any(name in before.knobs and name not in less for name in COSTS_ONCE)
            one_s = self._longest_s[True] - (min(run.parts.get("building", 0.0) for run in arms.tuned) if built else 0.0)
            others = Arms(plain=arms.plain, kept=compiled(less), cold_bytes=arms.cold_bytes)
            told = self._rest(others, less, length, (ends, one_s, _value(best)))
            if isinstance(told, Missing):
                says_nothing = before.code == "confirmed" or told.reason == TOO_FEW
                return before if says_nothing else _failed(told, True, less, _left(before, less, {}))
            if told is None or _value(told) <= _value(best):
                continue
            told = replace(told, left_out=_left(before, told.knobs, told.not_on))
            if told.code == "confirmed":
                return told
            knobs, best = dict(told.knobs), told
        return before

    def _rest(
        self, arms: Arms, knobs: Values, length: RunLength | None, room: tuple[float, float, float]
    ) -> Confirmed | Missing | None:
        """What these alone give; None where there is no time for a run. `room`: when it ends, what a run takes, and the ratio
        that they must exceed."""
        told: Confirmed | None = None
        ends, one_s, least = room
        while len(arms.tuned) < PAIRS and self._now() + one_s <= ends and (told is None or _value(told) > least):
            found = self._one(knobs, True, arms, ends)
            if isinstance(found, Missing):
                return told if told is not None and found.reason == TOO_FEW else found
            arms.tuned.append(found)
            told = self._judged(arms, knobs, length, None)
        return told


def compiled(knobs: Values) -> bool:
    """By a compiler, which keeps what it built; not recorded."""
    return knobs.get("compile") not in NOTHING_BUILT


def suspects(told: Confirmed, gains: Mapping[str, float]) -> list[tuple[str, ...]]:
    """In which order settings are left out of what is not faster: those that cost in a part that grew, the one that grew most
    first; then, of what looks slower, those that gave least. Those of the loader go together."""
    once: list[tuple[str, ...]] = [(name,) for name in COSTS_ONCE if name in told.knobs]
    loader = [group for group in [tuple(name for name in OF_THE_LOADER if name in told.knobs)] if group]
    by_part = [*once, *loader]
    if _more_s(told, AT_THE_TURN) <= 0:
        by_part = once
    elif _more_s(told, AT_THE_TURN) > _more_s(told, ("building",)):
        by_part = [*loader, *once]
    if _value(told) >= 1:
        return by_part
    others = [(name,) for name in told.knobs if name not in (*OF_THE_LOADER, *COSTS_ONCE)]
    rest = [group for group in (*loader, *others) if group not in by_part]
    return [*by_part, *sorted(rest, key=lambda group: min(gains.get(name, 1.0) for name in group))]


def _more_s(told: Confirmed, parts: Sequence[str]) -> float:
    """That the tuned run spends in them beyond the plain one."""
    if told.plain is None or told.tuned is None:
        return 0.0
    plain, tuned = (promise.parts_of(one, told.epochs or 1.0) for one in (told.plain, told.tuned))
    return sum(tuned[name] - plain[name] for name in parts)


def _left(before: Confirmed, knobs: Values, not_on: Mapping[str, str]) -> Values:
    """Out of what was asked for; what never came on is told of by itself."""
    left = {name: value for name, value in before.knobs.items() if name not in knobs and name not in not_on}
    return {**before.left_out, **left}


def _value(told: Confirmed) -> float:
    return told.ratio.value if isinstance(told.ratio, Ratio) else 0.0


def _failed(found: Missing, tuned: bool, knobs: Values, left_out: Mapping[str, str] | None = None) -> Confirmed:
    code = "no-time" if found.reason == TOO_FEW else "tuned-fails" if tuned else "plain-fails"
    return Confirmed(code=code, knobs=dict(knobs), left_out=dict(left_out or {}), why=found.reason, detail=found.detail)


def _ratio(arms: Arms, length: RunLength | None, loop: Ratio | None) -> Ratio | Missing:
    return judged(arms, {}, length, loop).ratio


def _slower(arms: Arms, length: RunLength | None, loop: Ratio | None) -> bool:
    """Plainly: the time is for another way. Of what was built once it is not known yet what it costs again."""
    if arms.kept and len(arms.tuned) == 1:
        first = arms.tuned[0]
        parts = {**first.parts, "building": AGAIN * first.parts.get("building", 0.0)}
        arms = replace(arms, tuned=[replace(first, parts=parts)])
    ratio = _ratio(arms, length, loop)
    return isinstance(ratio, Ratio) and ratio.high < 1
