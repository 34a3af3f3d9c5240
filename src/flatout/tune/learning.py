"""The race of two batch sizes to the same loss, each in fresh children: so that "faster" means training.

It is part of the budget: each of the six curves has an equal share of what is left, and where that is too little to show
anything nothing is raced, which is said.
"""

from __future__ import annotations

from flatout.measure.time_to_loss import Learned, LossCurve, TimeToLoss, judge
from flatout.tune.course import Course, Steps
from flatout.tune.model import Values

SEEDS = 3
STEPS = 4000  # of the plain training at most: mostly the seconds end it
SHARE = 1 / 12  # of the budget, for each of the curves at most
LEAVING_S = 0.5  # of a child that has told its losses
SHORTEST_S, LONGEST_S = 1.0, 20.0


def race(course: Course, changed: Values) -> Steps[TimeToLoss]:
    """What is kept at the script's own batch against the same at the changed one, for the same seconds of the loop."""
    own = {name: value for name, value in changed.items() if name != "batch_size"}
    pairs: list[tuple[LossCurve, LossCurve]] = []
    for number in range(SEEDS):
        seconds = _seconds(course, 2 * (SEEDS - number))
        if seconds < SHORTEST_S:
            return TimeToLoss(verdict=Learned.UNKNOWN, code="no-time-to-race", pairs=len(pairs))
        course.pending = 2 * (SEEDS - number)
        plain = yield from course.ask_curve(own, 1000 * number, seconds, STEPS)
        if plain is None:
            break
        # A little longer than the plain one: what comes to the goal in the last moment has come to it.
        as_long = 1.02 * plain.seconds[-1]
        other = yield from course.ask_curve(changed, 1000 * number, as_long, 10 * STEPS)
        if other is None:
            break
        pairs.append((plain, other))
    return judge(pairs)


def _seconds(course: Course, curves: int) -> float:
    """For each curve that is still to come, besides its child."""
    child = course.start_s + course.standing_build_s + LEAVING_S
    left = course.plan.budget_s - course.spent_s - curves * child
    return min(LONGEST_S, SHARE * course.plan.budget_s, left / curves)
