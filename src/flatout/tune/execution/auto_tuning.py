"""`run --auto` from the outside: a thread beside the running script that asks its agent for one segment after another.

The script trains on whatever is asked: nothing is replayed or started again, and only what is exact for this script is offered.
It is judged as in `flatout tune`: plain and changed in turn, with an interval.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from _flatout_agent import wire
from flatout.base import records
from flatout.base.clock import Clock
from flatout.launch.error_texts import errors_scrubbed
from flatout.measure.auto import AutoDecision, AutoTuning
from flatout.tune.execution.search_journal import TuneLine, line_of
from flatout.tune.search import what_to_try as planning
from flatout.tune.search.agent_answers import result_of
from flatout.tune.search.compute_knobs import hot_knobs, is_compute
from flatout.tune.search.input_knobs import input_knobs
from flatout.tune.search.questions_and_answers import Decision, Finished, Mode, Segment, SegmentResult
from flatout.tune.search.search import Search, ended
from flatout.tune.search.search_state import Course, Steps

BUDGET_S = 120.0
LOOK_S = 0.05
PATIENCE_S = 2.0
JOURNAL = "auto.jsonl"


def auto_course(course: Course) -> Steps[Finished]:
    """The whole search without what needs replayed batches, a fresh child or another rounding."""
    course.compute_mode = Mode.REAL
    course.input_matched = True
    course.supply_tells = course.spans_epochs = False  # both would cost the training something: batches, or its time
    course.demand_may_grow = False
    return (yield from ended(course, _improve))


def _improve(course: Course) -> Steps[None]:
    for offer in course.plan.offers:
        code = course.why_not(offer)
        if code is not None:
            for value in offer.values or ["more"]:
                course.decide(offer, value, code, {"allowed": course.plan.allow.value})
    yield from input_knobs(course)
    yield from hot_knobs(course, [offer for offer in course.offers() if is_compute(offer)])


class AutoTuner:
    """A context manager beside the child; never raises, and is told what came of it when the script has ended."""

    def __init__(
        self,
        clock: Clock,
        usable_cores: float,
        done: Callable[[AutoTuning], None],
        hidden: Sequence[str] = (),
        **limits: float,
    ) -> None:
        """`hidden`: the script's keys and passwords; `limits`: of the plan's, in all (budget_s) and of a segment (timed_s)."""
        self._clock = clock
        self._cores = usable_cores
        self._limits = {"budget_s": BUDGET_S, **limits}
        self._done = done
        self._hidden = hidden
        self._folder = Path()
        self._gone = threading.Event()
        self._search: Search | None = None
        self._end: Finished | None = None
        self._began = 0.0
        self._results: list[SegmentResult] = []
        # A daemon: nothing of ours may keep the process alive.
        self._thread = threading.Thread(target=self._watch, name="flatout-auto", daemon=True)

    def beside(self, folder: Path) -> AutoTuner:
        self._folder = folder
        return self

    def __enter__(self) -> AutoTuner:
        with contextlib.suppress(RuntimeError):  # no more threads to be had
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._gone.set()
        if self._thread.ident is not None:
            self._thread.join(PATIENCE_S)

    def told(self) -> AutoTuning:
        if self._search is None:
            return AutoTuning(ending="not-begun")
        if self._end is None:
            decisions, seconds = self._search.decisions, self._clock.monotonic() - self._began
            return AutoTuning(
                ending="ended",
                decisions=_plain(decisions),
                seconds=seconds,
                segments=len(self._results),
                knobs=self._search.whole,
            )
        end = self._end
        return AutoTuning(
            ending=end.ending.value,
            knobs=dict(end.profile),
            decisions=_plain(end.decisions),
            gain=end.speedup,
            lower=end.lower,
            upper=end.upper,
            baseline=end.baseline,
            final=end.final,
            seconds=end.spent_s,
            segments=end.segments,
        )

    # -- in the thread --------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        with contextlib.suppress(Exception):  # a fault of ours costs the tuning, never the training
            ready = self._answer(wire.READY)
            if ready is not None:
                self._tune(ready)

    def _tune(self, ready: dict[str, Any]) -> None:
        self._began = self._clock.monotonic()
        search = self._search = Search(planning.make_exact(ready, self._cores, **self._limits), auto_course)
        self._note(TuneLine(plan=search.plan))
        while True:
            wanted = search.next(self._results)
            if isinstance(wanted, Finished):
                self._end = wanted
                self._ask({"id": wanted.segments + 1, "knobs": wanted.profile, "final": True})
                self._done(self.told())
                return
            result = self._carry_out(wanted, search.whole)
            if result is None:
                return
            self._note(TuneLine(segment=wanted, result=result))
            self._results.append(result)

    def _carry_out(self, segment: Segment, standing: dict[str, str]) -> SegmentResult | None:
        began = self._clock.monotonic()
        self._ask({**records.dump(segment), "standing": standing})
        answer = self._answer(wire.answer_name(segment.id))
        return None if answer is None else result_of(answer, self._clock.monotonic() - began)

    def _ask(self, question: dict[str, Any]) -> None:
        records.write_bytes(self._folder / wire.QUESTION, records.encode(question))

    def _answer(self, name: str) -> dict[str, Any] | None:
        """None where the script has ended first."""
        path = self._folder / name
        while not path.exists():
            if self._gone.wait(LOOK_S):
                return None
        found: dict[str, Any] = errors_scrubbed(json.loads(path.read_bytes()), self._hidden)
        return found

    def _note(self, line: TuneLine) -> None:
        with (self._folder / JOURNAL).open("a", encoding="ascii") as file:
            file.write(line_of(line))


def _plain(decisions: list[Decision]) -> list[AutoDecision]:
    return [
        AutoDecision(
            knob=one.knob,
            value=one.value,
            verdict=one.verdict.value,
            code=one.code,
            params=dict(one.params),
            ratio=one.ratio,
            lower=one.lower,
            upper=one.upper,
        )
        for one in decisions
    ]
