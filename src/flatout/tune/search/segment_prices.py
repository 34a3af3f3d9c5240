"""What steps, starts and builds were seen to cost: by that a search knows what a segment will take, and what it can pay."""

from __future__ import annotations

from statistics import median

from flatout.base.records import Missing, replace
from flatout.tune.search.questions_and_answers import Mode, Segment, SegmentResult, Status, Values

RECENT = 8
BUILT_S = 1.0  # of compiling: less is no build


class Prices:
    def __init__(self) -> None:
        self._steps: dict[Mode, list[float]] = {}  # seconds of a step …
        self._beside: dict[Mode, list[float]] = {}  # … and what segments took beside their steps: switching, evaluations, logs
        self._starts: list[float] = []
        self._built: set[tuple[tuple[str, str], ...]] = set()  # what was compiled for in the living child
        self._turned_back: list[float] = []
        self.plain_s = 0.0  # a segment of the plain script
        self.rebuilt_s: float | None = None  # in a fresh child

    def started(self, seconds: float, build_s: float) -> None:
        self._starts.append(max(0.0, seconds))
        if build_s > 0:
            self.rebuilt_s = build_s

    def stepped(self, mode: Mode, result: SegmentResult) -> None:
        if isinstance(result.step_s, float):
            self._steps.setdefault(mode, []).append(result.step_s)

    def ran(self, segment: Segment, result: SegmentResult) -> None:
        """In a living child."""
        took = result.took_s - result.build_s
        if isinstance(result.step_s, float):
            steps_s = (segment.warm_steps + result.steps) * result.step_s
            self._beside.setdefault(segment.mode, []).append(max(0.0, took - steps_s))
        if segment.mode is Mode.REAL and not segment.knobs:
            self.plain_s = took

    def built(self, values: Values, restart: bool, build_s: float) -> None:
        """Under something that is compiled."""
        if restart:
            self._built.clear()
        key = tuple(sorted(values.items()))
        if key in self._built:
            self._turned_back.append(build_s)
        self._built.add(key)

    def step_s(self, mode: Mode) -> float | Missing:
        """Of the latest segments in this mode, or of the real loop."""
        return _median(self._steps.get(mode) or self._steps.get(Mode.REAL) or [])

    def beside_s(self, mode: Mode) -> float:
        seen = _median(self._beside.get(mode) or self._beside.get(Mode.REAL) or [])
        return 0.0 if isinstance(seen, Missing) else seen

    def start_s(self) -> float | Missing:
        return _mean(self._starts)

    def turning_back_s(self) -> float | Missing:
        """To something that was compiled before."""
        return _mean(self._turned_back)


def with_all_of_its_build(result: SegmentResult, usual_s: float) -> SegmentResult:
    """A compiler tells of its own work; the backward pass, recording and first runs come on top. A training pays for it all:
    for what the segment took beyond the usual."""
    if result.status is not Status.OK or result.build_s < BUILT_S:
        return result
    return replace(result, build_s=max(result.build_s, result.took_s - usual_s))


def _median(seconds: list[float]) -> float | Missing:
    """What happens once, a new shape or a plan that is searched, is no price."""
    recent = seconds[-RECENT:]
    return median(recent) if recent else Missing("not-measured")


def _mean(seconds: list[float]) -> float | Missing:
    recent = seconds[-RECENT:]
    return sum(recent) / len(recent) if recent else Missing("not-measured")
