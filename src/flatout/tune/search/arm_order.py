"""In which order the two arms of a comparison come, and how long a segment must be to say something."""

from __future__ import annotations

from collections.abc import Sequence

from flatout.base.records import Missing, Struct
from flatout.measure.statistics import PAIRS_AT_LOOK
from flatout.tune.search.questions_and_answers import Mode, Plan, Segment, SegmentResult, Values

# A B, B A, B A, A B: also a drift that bends cancels, and noise with a memory errs both ways.
HOT_ORDER = (True, False, False, True)
# A B, B A, A B, B A: where each change costs a child, an arm's end meets its own beginning; five children, not six.
RESTART_ORDER = (True, False)

FROM_THE_LOADER = frozenset({Mode.REAL, Mode.SUPPLY})
FEWEST_TIMED_STEPS = 8
DEFAULT_PREFETCH = 2
FEWEST_STEPS = 3
SLOW_DRAWN = 3  # batches
SLOW_S = 1.0  # so many seconds of steps are enough
SLOW_STEP_S = 0.3  # such a step scatters little and costs much: one to warm, and one or two that are timed
TURN_S = 0.5  # from one epoch to the next, with workers to start
CEILING_LENGTH = 0.6  # of a segment: what waits for nothing scatters less


class Shape(Struct, frozen=True, kw_only=True):
    """How a segment differs from the usual one."""

    longer: float = 1.0
    batch: int | None = None
    through_epoch: bool = False
    epochs: int = 0  # timed over so many whole ones
    warm: int | None = None  # steps, where fewer are enough …
    steps: int | None = None  # … and those that are timed
    limit_s: float | None = None
    bounded: bool = False  # given up soon after the end of the budget


USUAL = Shape()


def a_first(pair: int, restarting: bool) -> bool:
    order = RESTART_ORDER if restarting else HOT_ORDER
    return order[pair % len(order)]


def segments_for(pairs: int) -> int:
    return 2 * pairs


LOOK_SEGMENTS = segments_for(PAIRS_AT_LOOK[0])


def children_for(pairs: int) -> int:
    """Fresh children that a restarting comparison of so many pairs takes, the first included."""
    return pairs + 1


def restarting(plan: Plan, first: Values, second: Values) -> bool:
    return restart_values(plan, first) != restart_values(plan, second)


def restart_values(plan: Plan, values: Values) -> Values:
    names = {offer.knob for offer in plan.offers if offer.restart} | {"batch_size"}
    return {knob: value for knob, value in values.items() if knob in names}


def workers_of(plan: Plan, values: Values) -> int:
    return int(values.get("workers", plan.workers))


def warm_steps(plan: Plan, values: Values, mode: Mode, step_s: float | Missing) -> int:
    """Until what a switch left behind is gone: with workers also the batches that lay ready, which came at no price."""
    if is_slow(step_s):
        return 2 if any(offer.builds and offer.knob in values for offer in plan.offers) else 1
    fewest = _fewer_if_slow(plan.warm_steps, step_s)
    if mode not in FROM_THE_LOADER or not workers_of(plan, values):
        return fewest
    ready = workers_of(plan, values) * int(values.get("prefetch_factor", DEFAULT_PREFETCH))
    return max(fewest, ready + 2)


def warm_steps_of(shape: Shape, plan: Plan, values: Values, mode: Mode, step_s: float | Missing) -> int:
    """As the shape wants them; but what is compiled is not there, or not recorded, before a few steps are done."""
    if shape.warm is None:
        return warm_steps(plan, values, mode, step_s)
    builds = any(offer.builds and offer.knob in values for offer in plan.offers)
    return max(shape.warm, warm_steps(plan, values, mode, step_s)) if builds else shape.warm


def timed_steps(plan: Plan, values: Values, mode: Mode, step_s: float | Missing) -> int:
    """Workers deliver in bursts of their number: a window must hold several bursts."""
    if is_slow(step_s):
        return SLOW_DRAWN if mode is Mode.SUPPLY else _few(step_s)
    bursts = 4 * workers_of(plan, values) if mode in FROM_THE_LOADER else 0
    return max(_fewer_if_slow(FEWEST_TIMED_STEPS, step_s), bursts)


def is_slow(step_s: float | Missing) -> bool:
    return isinstance(step_s, float) and step_s > SLOW_STEP_S


def _few(step_s: float | Missing) -> int:
    return 2 if isinstance(step_s, float) and step_s <= SLOW_S else 1


def _fewer_if_slow(steps: int, step_s: float | Missing) -> int:
    """Steps of half a second scatter little and cost much: a few are enough."""
    if isinstance(step_s, Missing) or steps * step_s <= SLOW_S:
        return steps
    return max(2, int(SLOW_S / step_s))


def epochs_s(plan: Plan, step_s: float | Missing, epochs: int) -> float:
    """What a segment over so many epochs takes: on average half of one passes before it can begin."""
    if not epochs or plan.epoch_steps is None or isinstance(step_s, Missing):
        return 0.0
    return (epochs + 0.5) * (plan.epoch_steps * step_s + TURN_S)


def enough(result: SegmentResult, segment: Segment, shape: Shape, usual_s: float) -> bool:
    """Of a script that ended in the middle."""
    half = usual_s * min(1.0, shape.longer) / 2
    fewest = min(FEWEST_STEPS, segment.timed_steps)
    return result.seconds >= half and result.steps >= fewest and result.samples > 0


def until_the_end_s(plan: Plan, spent_s: float, overtime: float = 0.0) -> float:
    """Of the budget, which is a promise: no segment takes longer, whatever it does; one may have begun at its very end."""
    return max(plan.timed_s, (1 + overtime) * plan.budget_s - spent_s)


def differing(first: Values, second: Values) -> Sequence[str]:
    """Knobs that `second` sets and `first` does not, or not so."""
    return [knob for knob, value in second.items() if first.get(knob) != value]
