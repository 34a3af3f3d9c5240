"""The race of two batch sizes to the same loss, each in fresh children: so that "faster" means training.

Like parity it has a time of its own, beside the budget: a search that paid for it would have none left for what comes after
the batch, and end slower than one that keeps it. That time is bounded; where children are too dear for it nothing is raced,
which is said.
"""

from __future__ import annotations

from flatout.measure.time_to_loss import Learned, LossCurve, TimeToLoss, judge
from flatout.tune.search.questions_and_answers import Mode, Segment, Values
from flatout.tune.search.search_state import Course, Steps

SEEDS = 3
STEPS = 4000  # of the plain training at most: mostly the seconds end it
SHARE = 1 / 12  # of the budget, for each of the curves
MOST_S, MOST = 100.0, 0.5  # for all of them and their children: so long, or this share of a longer budget
LEAVING_S = 0.5  # of a child that has told its losses
SHORTEST_S, LONGEST_S = 3.0, 20.0
OVERTIME = 0.25  # what has begun is brought to its end
LIKE_THE_FIRST = 0.8  # of the first look: what a child takes at most, until one was seen
PATIENCE, PATIENCE_S = 3.0, 20.0  # with a child that does not tell its losses


def race(course: Course, changed: Values) -> Steps[TimeToLoss]:
    """What is kept at the script's own batch against the same at the changed one, for the same seconds of the loop."""
    own = {name: value for name, value in changed.items() if name != "batch_size"}
    pairs: list[tuple[LossCurve, LossCurve]] = []
    lasts_s = max(MOST_S, MOST * course.plan.budget_s)
    end_s = course.raced_s + lasts_s
    for number in range(SEEDS):
        seeds = [1000 * later for later in range(number, SEEDS)]
        to_come = sum(_key(own, seed) not in course.curves for seed in seeds) + len(seeds)
        seconds = _seconds(course, end_s, OVERTIME * lasts_s, to_come)
        if seconds < SHORTEST_S:
            return TimeToLoss(verdict=Learned.UNKNOWN, code="no-time-to-race", pairs=len(pairs))
        course.pending = to_come
        give_up_s = seconds + PATIENCE * _child_s(course) + PATIENCE_S
        plain = yield from _train(course, own, seeds[0], seconds, STEPS, give_up_s)
        if plain is None:
            break
        if not plain.seconds:  # no number from its first loss on: nothing is there to race against
            return judge([(plain, plain)])
        # A little longer than the plain one: what comes to the goal in the last moment has come to it.
        as_long = 1.02 * plain.seconds[-1]
        other = yield from _train(course, changed, seeds[0], as_long, 10 * STEPS, give_up_s)
        if other is None:
            break
        pairs.append((plain, other))
    return judge(pairs)


def _train(course: Course, values: Values, seed: int, seconds: float, steps: int, give_up_s: float) -> Steps[LossCurve | None]:
    """The losses of a short training in a child of its own; what was trained in an earlier race is not trained again."""
    known = course.curves.get(_key(values, seed))
    if known is not None:
        return known
    course.asked += 1
    result = yield Segment(
        id=course.asked,
        knobs=dict(values),
        warm_steps=0,
        timed_s=seconds,
        timed_steps=steps,
        mode=Mode.REAL,
        restart=True,
        stage="learning",
        trying=list(course.trying),
        curve=True,
        seed=seed,
        give_up_s=give_up_s,
    )
    course.child_is_gone()
    course.raced_s += result.took_s
    trained_s = result.curve.seconds[-1] if result.curve is not None and result.curve.seconds else result.took_s
    course.curve_child_s = max(course.curve_child_s, result.took_s - trained_s)
    course.pending = max(0, course.pending - 1)
    if result.curve is not None:
        course.curves[_key(values, seed)] = result.curve
    return result.curve


def _key(values: Values, seed: int) -> tuple[tuple[tuple[str, str], ...], int]:
    return tuple(sorted(values.items())), seed


def _seconds(course: Course, end_s: float, overtime_s: float, curves: int) -> float:
    """For each curve that is still to come, besides its child."""
    left, child_s, begun = end_s - course.raced_s, _child_s(course), bool(course.curve_child_s)
    dear_s = child_s if begun else max(child_s, LIKE_THE_FIRST * course.plan.looked_s)
    if left + (overtime_s if begun else 0.0) < curves * (child_s + SHORTEST_S):
        return 0.0
    return min(LONGEST_S, max(SHORTEST_S, SHARE * course.plan.budget_s), max(SHORTEST_S, left / curves - dear_s))


def _child_s(course: Course) -> float:
    """As its like were seen to take, which have all the script's own beginning in them."""
    return max(course.start_s + course.standing_build_s + LEAVING_S, course.curve_child_s)
