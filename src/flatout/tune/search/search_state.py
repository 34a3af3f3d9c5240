"""Where a search stands: what is kept, what was decided, what is spent. Results alone change it, so it can be replayed."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import TypeAlias, TypeVar

from flatout.base.records import Missing, replace
from flatout.knobs.model import Bound, Numerics
from flatout.measure.statistics import Comparison
from flatout.measure.time_to_loss import LossCurve
from flatout.tune.search.arm_order import (
    CEILING_LENGTH,
    FEWEST_STEPS,
    USUAL,
    Shape,
    enough,
    is_slow,
    restart_values,
    timed_steps,
    until_the_end_s,
    warm_steps,
    warm_steps_of,
)
from flatout.tune.search.decision_reasons import REASONS
from flatout.tune.search.device_or_host_bound import Pace
from flatout.tune.search.measured_noise import Noises
from flatout.tune.search.questions_and_answers import (
    BatchGoal,
    BatchStory,
    Ceilings,
    Decision,
    Mode,
    Offer,
    Params,
    Plan,
    Reached,
    Segment,
    SegmentResult,
    Status,
    Values,
    Verdict,
)
from flatout.tune.search.segment_prices import Prices, with_all_of_its_build
from flatout.tune.search.stop_reasons import BudgetSpentError, TooShortError

T = TypeVar("T")

OVERTIME = 0.1  # of the budget: what has not answered then is given up
Steps: TypeAlias = Generator[Segment, SegmentResult, T]

FINAL_PAIRS = 6
FEWEST_FINAL = 4  # give an interval
MOST_KEPT_BACK = 0.5  # of the budget: else a slow loop has its time for nothing
LEAST_KEPT_BACK = 1 / 3  # the same while nothing is kept that could be compared
SHORTEST = 1 / 4  # of the asked length, for scripts that end after a few steps
REBUILD = 0.5  # of the first build, until a second was seen: compilers keep caches
AGAIN = 0.5  # of the first look, which reads torch from the disk: what a start takes until one was seen
FEWEST_SEGMENTS = 4  # of a comparison whose answer is plain
INPUT_SEGMENTS = 8  # a look, a short ladder, one comparison
BATCH_SEGMENTS = 8  # a few probes and a proof
SHORT = 0.9  # of the lower ceiling
REAL_LONGER = 1.5  # a loader delivers unevenly: workers in bursts, disks in fits
SLOW_SEGMENT_S = 2.0
HURRY_S = 150.0  # a budget below this is for what gives most
FEW_SEGMENTS = 32  # a budget for fewer than these has no room for looks at both sides and a plain arm for each setting


class Course:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.whole: Values = {}
        self.decisions: dict[tuple[str, str], Decision] = {}
        self.order: list[str] = []  # kept knobs, the latest last
        self.aid: Values = {}  # set in both arms of a trial of the compute side, not kept
        self.classes: dict[str, Numerics] = {}
        self.noise = Noises()
        self.compute_mode = Mode.REPLAY_HOST if plan.has_loader else Mode.REAL
        self.contended = False  # beside its workers the loop does less than either side alone: kept batches do not show that
        self.input_matched = not any(Bound.INPUT in offer.cures for offer in plan.offers)
        self.bound_before: Bound | None = None
        self.bound: Bound | None = None
        self.pace = Pace()
        self.step_s: float | Missing = plan.step_s if plan.step_s else Missing("not-measured")
        self.input_share = 1.0  # of the real loop's time, until it was seen: more cannot be won on the input side
        self.ceilings = Ceilings()
        self.floors_seen: tuple[float | Missing, float | Missing] = (Missing("not-measured"),) * 2  # with and without the copy
        self.supplies: dict[int, float] = {}  # by number of workers, what the loader gives when nothing is computed
        self.supplied_with: dict[int, Values] = {}  # how it was set otherwise
        self.most_supply: float | None = None  # the best of them, where more workers were seen to give no more
        self.supply_tells = plan.has_loader  # until a loader's supply turns out not to be measurable
        self.spans_epochs = True  # segments may take whole epochs
        self.turns_known = False  # workers of the agent's live over the turn of the epoch wherever fresh ones would be the same
        self.demand_may_grow = True  # until the compute side has had its knobs
        self.looked_at: Values | None = None  # what was kept when the ceilings were measured last
        self.for_few = False  # the budget is for a few segments only, as the first one showed
        self.wall = False  # the input side holds up all that could be won elsewhere
        self.doubted: set[str] = set()  # knobs that failed together: alone they get one try, not two
        self.hang_s = 0.0  # what waiting for one took: those that hung together are tried alone where that can be paid again
        self.build_s: dict[str, float] = {}  # of what is kept
        self.longest_build_s = 0.0
        self.unpaid: set[str] = set()  # kept until whole runs decide: not shown enough, or worth their build in a longer run
        self.first_gain: dict[str, float] = {}
        self.reached: Reached | None = None
        self.batch: BatchStory | None = None
        self.batch_to_come = plan.batch is not BatchGoal.KEEP and plan.batch_size is not None
        self.samples_per_step: float | None = None  # of the plain script
        self.worst_drift, self.throttled = 0.0, False
        self.broke = Status.OK  # how what was kept broke last
        self.stage = "baseline"
        self.trying: list[str] = []
        self.pending = 0  # segments that the stage at hand still expects
        self.asked, self.spent_s = 0, 0.0
        self.late_looks_s = 0.0  # foreseen for looks after many pairs
        self.raced_s, self.curve_child_s = 0.0, 0.0  # beside the budget; of one such child, what is no training
        self.died: list[int] = []  # batches, in the real loop
        self._child: Values | None = None  # restart knobs of the living child
        self._prices = Prices()
        self.curves: dict[tuple[tuple[tuple[str, str], ...], int], LossCurve] = {}  # by knobs and seed
        self._scale = 1.0

    @property
    def in_a_hurry(self) -> bool:
        return self.plan.budget_s < HURRY_S

    @property
    def has_short_last_comparison(self) -> bool:
        """Whether the last comparison is short: the whole runs that follow say more."""
        return self.in_a_hurry and self.plan.whole_runs_follow

    @property
    def sparing(self) -> bool:
        """Whether each segment is dear, by its slow steps or by how few there will be."""
        return self.for_few or is_slow(self.step_s)

    @property
    def fits_only(self) -> bool:
        """Whether the largest batch is all that is wanted: then the ceilings of both sides are nobody's question."""
        return self.plan.batch is BatchGoal.FIT and self.plan.only == ["batch_size"]

    @property
    def copies(self) -> bool:
        """Whether batches have a way to go: on a processor they are where they are computed with."""
        return any(Bound.COPY in offer.cures for offer in self.plan.offers)

    @property
    def judging(self) -> Mode:
        """Where the batches come from by which the compute side is judged."""
        return Mode.REAL if self.contended else self.compute_mode

    # -- segments ---------------------------------------------------------------------------------------------

    def ask(
        self, values: Values, mode: Mode, fresh: bool = False, shape: Shape = USUAL, may_be_late: bool = False
    ) -> Steps[SegmentResult]:
        """One segment; a script that ended is started again, and asked for less where it cannot give so much. Whoever can do
        with what is known so far asks with `may_be_late`; for all others the end of the budget is the end."""
        while True:
            restart = fresh or not self.child_lives(values)
            usual_s = self.hot_s(mode) + (self.start_s if restart else 0.0)
            segment = self._segment(values, mode, restart, shape)
            result = with_all_of_its_build((yield segment), usual_s)
            self._account(segment, result)
            if result.status is Status.LATE and not (may_be_late or shape.bounded):
                raise BudgetSpentError
            if result.status is Status.ENDED and shape.epochs:
                return replace(result, status=Status.REFUSED, code="too-few-epochs")
            if result.status is not Status.ENDED or enough(result, segment, shape, self.plan.timed_s * self._scale):
                return result
            if restart:
                self._scale /= 2
                if self._scale < SHORTEST:
                    raise TooShortError
            fresh = False  # the child is gone: the next one is fresh anyway

    def ask_gently(self, values: Values, mode: Mode, shape: Shape = USUAL) -> Steps[SegmentResult | None]:
        """One segment of something that may end the script too soon to be timed: None then, and the search is no wiser."""
        scale = self._scale
        try:
            return (yield from self.ask(values, mode, shape=shape))
        except TooShortError:
            return None
        finally:
            self._scale = scale

    def child_is_gone(self) -> None:
        self._child = None

    def _segment(self, values: Values, mode: Mode, restart: bool, shape: Shape) -> Segment:
        self.asked += 1
        longer = shape.longer
        fewest = 1 if is_slow(self.step_s) else FEWEST_STEPS
        return Segment(
            id=self.asked,
            knobs=dict(values),
            warm_steps=max(1, int(warm_steps_of(shape, self.plan, values, mode, self.step_s) * self._scale)),
            timed_s=self.plan.timed_s * self._scale * longer * (REAL_LONGER if mode is Mode.REAL else 1.0),
            timed_steps=shape.steps
            or max(fewest, int(timed_steps(self.plan, values, mode, self.step_s) * self._scale * longer)),
            mode=mode,
            epochs=shape.epochs,
            restart=restart,
            stage=self.stage,
            trying=list(self.trying),
            batch=shape.batch,
            through_epoch=shape.through_epoch,
            limit_s=min(shape.limit_s or math.inf, until_the_end_s(self.plan, self.spent_s)),
            give_up_s=until_the_end_s(self.plan, self.spent_s, OVERTIME),
        )

    def _account(self, segment: Segment, result: SegmentResult) -> None:
        values, mode, restart = segment.knobs, segment.mode, segment.restart
        self.spent_s += result.took_s
        self.pending = max(0, self.pending - 1)
        self.classes.update(result.classes)
        workers = result.outcomes.get("workers")
        self.turns_known = bool(workers.details.get("turns_known", self.turns_known)) if workers else self.turns_known
        if result.status is Status.HANG:
            self.hang_s = max(self.hang_s, result.took_s)
        gone = result.fault or result.status in (Status.ENDED, Status.LATE)
        self._child = None if gone else restart_values(self.plan, values)
        plain = result.took_s - result.build_s
        if result.status is not Status.OK:
            if restart and result.status is Status.ENDED and result.steps and self.asked > 1:
                self._prices.started(max(0.0, plain - self.hot_s(mode)), result.build_s)
            return
        if any(offer.builds and offer.knob in values for offer in self.plan.offers):
            self._prices.built(values, restart, result.build_s)
        if not segment.epochs and segment.batch is None and "batch_size" not in values:
            self._prices.stepped(mode, result)
        if restart:
            # The first child was there before: what it took is known from the first look.
            looked = AGAIN * self.plan.looked_s if self.asked == 1 else 0.0
            self._prices.started(max(looked, plain - self.hot_s(mode)), result.build_s)
        elif not segment.epochs:
            self._prices.ran(segment, result)
        if mode is Mode.REAL and not values and result.steps and result.samples > result.steps:
            self.samples_per_step = result.samples / result.steps

    def child_lives(self, values: Values) -> bool:
        return self._child is not None and self._child == restart_values(self.plan, values)

    # -- time ---------------------------------------------------------------------------------------------------

    def hot_s(self, mode: Mode = Mode.REAL) -> float:
        """What a segment takes in a living child: its steps, and what else it was seen to take."""
        seen = self._prices.step_s(mode)
        step = self.step_s if mode is Mode.REAL or isinstance(seen, Missing) else seen
        if isinstance(step, Missing):
            return 1.6 * self.plan.timed_s
        warm = warm_steps(self.plan, self.whole, mode, self.step_s)
        timed_s = self.plan.timed_s * self._scale * (REAL_LONGER if mode is Mode.REAL else 1.0)
        timed = max(timed_s, timed_steps(self.plan, self.whole, mode, self.step_s) * step)
        return warm * step + timed + self._prices.beside_s(mode)

    @property
    def start_s(self) -> float:
        seen = self._prices.start_s()
        return self.plan.start_s if isinstance(seen, Missing) else seen

    @property
    def standing_build_s(self) -> float:
        """What a fresh child must build again for what is kept: often less than the first time, thanks to caches."""
        first, again = self.first_build_s, self.rebuilt_s
        return first * REBUILD if again is None else min(first, again)

    @property
    def rebuilt_s(self) -> float | None:
        """What building took in a fresh child, with what compilers had kept; None until it was seen."""
        return self._prices.rebuilt_s

    @property
    def first_build_s(self) -> float:
        """What building for something new costs, with what is kept: another format is in no cache."""
        return sum(self.build_s.get(knob, 0.0) for knob in self.whole)

    @property
    def reserve_s(self) -> float:
        """Kept back for matching the input side, for leaving knobs out once and for the last comparison."""
        last = self.final_s(bool(restart_values(self.plan, self.whole)), beside=not self.has_short_last_comparison)
        few = last * FEWEST_FINAL / FINAL_PAIRS
        last = few if self.has_short_last_comparison else last
        if self.sparing:  # what is kept was judged piece by piece: that does where a last comparison would take much
            return few if self.stage != "final" and few <= LEAST_KEPT_BACK * self.plan.budget_s else 0.0
        if not self.whole and (not self.demand_may_grow or self.stage == "input"):
            return 0.0 if self.stage == "again" and not self.demand_may_grow else min(few, LEAST_KEPT_BACK * self.plan.budget_s)
        enough = self.input_matched or (self.in_a_hurry and self.contended)  # then it is not data that the loop lacks
        matching = 0.0 if enough else INPUT_SEGMENTS * self.hot_s()
        looking = 0.0 if self.looked_at == self.whole else 2 * self.hot_s() + 3 * self.hot_s(self.compute_mode)
        launches = self.stage == "build" and self.pace.waits_for_launches
        asked = self.stage in ("each", "final") or (self.stage == "input" and self._falls_short()) or launches
        again = 0 if asked else sum(not self.is_exact(knob) for knob in self.whole)
        batch = self.cost_s(BATCH_SEGMENTS, 1) if self.batch_to_come else 0.0
        kept_back = last + matching + looking + batch + FEWEST_SEGMENTS * again * self.hot_s(self.compute_mode)
        return min(kept_back, MOST_KEPT_BACK * self.plan.budget_s)

    def _falls_short(self) -> bool:
        """Far from what both sides could do: then what may close the gap comes before leaving out what is kept."""
        ceilings = self.ceilings
        supply = ceilings.supply if self.most_supply is not None else None  # else more workers may give more
        known = [rate for rate in (ceilings.with_copy, supply) if isinstance(rate, float)]
        return isinstance(ceilings.real, float) and bool(known) and ceilings.real < SHORT * min(known)

    def final_s(self, restarts: bool, beside: bool = True) -> float:
        """Of the last comparison, with its lower ceiling `beside` it or without."""
        fresh = (FINAL_PAIRS + 1) * self.start_s + FINAL_PAIRS / 2 * self.standing_build_s if restarts else 0.0
        again = self._prices.turning_back_s()
        turning = again if isinstance(again, float) and self.standing_build_s and not restarts else 0.0
        tuned = self.hot_s()
        # In a hurry some seconds over are the smaller evil; not where they are many.
        plain = tuned if self.in_a_hurry and self._prices.plain_s < SLOW_SEGMENT_S else max(tuned, self._prices.plain_s)
        replayed = beside and self.compute_mode is not Mode.REAL
        ceiling = CEILING_LENGTH * self.hot_s(self.compute_mode) if replayed else 0.0
        return FINAL_PAIRS * (tuned + plain + turning + ceiling) + fresh

    def left_s(self) -> float:
        return self.plan.budget_s - self.spent_s - self.reserve_s

    def cost_s(self, segments: int, children: int = 0, build_s: float = 0.0, mode: Mode = Mode.REAL) -> float:
        return segments * self.hot_s(mode) + children * (self.start_s + self.standing_build_s) + build_s

    # -- decisions --------------------------------------------------------------------------------------------

    def offers(self) -> list[Offer]:
        """What the user chose and the allowed classes leave, in the plan's order."""
        return [offer for offer in self.plan.offers if self.why_not(offer) is None]

    def why_not(self, offer: Offer) -> str | None:
        if (self.plan.only and offer.knob not in self.plan.only) or offer.knob in self.plan.skip:
            return "not-chosen"
        ranks = list(Numerics)
        return "not-allowed" if ranks.index(self.class_of(offer)) > ranks.index(self.plan.allow) else None

    def class_of(self, offer: Offer) -> Numerics:
        return self.classes.get(offer.knob, offer.numerics)

    def is_exact(self, knob: str) -> bool:
        return self.class_of(self.offer(knob)) is Numerics.EXACT

    def decide(
        self,
        offer: Offer,
        value: str,
        code: str,
        params: Params | None = None,
        seen: tuple[Comparison, Mode] | None = None,
    ) -> Decision:
        compared = {}
        if seen is not None:
            found, mode = seen
            compared = {"ratio": found.ratio, "lower": found.lower, "upper": found.upper, "pairs": found.pairs, "mode": mode}
        decision = Decision(
            knob=offer.knob,
            value=value,
            verdict=REASONS[code][0],
            code=code,
            params=params or {},
            numerics=self.class_of(offer),
            **compared,  # type: ignore[arg-type]
        )
        self.decisions.pop((offer.knob, value), None)  # so that the order is that of the last word on each
        self.decisions[offer.knob, value] = decision
        return decision

    def no_time(self, offer: Offer, value: str, needs: float, room_s: float | None = None) -> Decision:
        """A knob that was judged before keeps that judgement."""
        before = self.decisions.get((offer.knob, value))
        left = max(0.0, self.left_s() if room_s is None else room_s)
        return before or self.decide(offer, value, "no-time", {"needs_s": math.ceil(needs), "left_s": math.floor(left)})

    def closed(self, knob: str, value: str) -> Decision | None:
        """The decision on something that failed or has no effect here: it is not asked again."""
        decision = self.decisions.get((knob, value))
        final = (Verdict.FAILED, Verdict.NOT_APPLIED)
        return decision if decision is not None and decision.verdict in final else None

    def judged(self, knob: str, value: str) -> bool:
        decision = self.decisions.get((knob, value))
        return decision is not None and decision.code != "no-time"

    def tried(self, knob: str, value: str) -> bool:
        return (knob, value) in self.decisions

    def keep(self, knob: str, value: str) -> None:
        self.whole = {**self.whole, knob: value}
        self.order = [*(name for name in self.order if name != knob), knob]

    def remove(self, knob: str) -> None:
        self.whole = {name: value for name, value in self.whole.items() if name != knob}
        self.order = [name for name in self.order if name != knob]

    def offer(self, knob: str) -> Offer:
        return next(offer for offer in self.plan.offers if offer.knob == knob)

    def saw(self, comparison: Comparison) -> None:
        if abs(comparison.drift.change) > abs(self.worst_drift):
            self.worst_drift = comparison.drift.change
        self.throttled = self.throttled or comparison.drift.throttled_after is not None
