"""The race of two batch sizes to the same loss, each in fresh children: so that "faster" means training.

It has its own time, beside the budget of the search, as the parity gate has.
"""

from __future__ import annotations

from flatout.measure.time_to_loss import LossCurve, TimeToLoss, judge
from flatout.tune.course import Course, Steps
from flatout.tune.model import Values

SEEDS = 3
STEPS = 400  # of the plain training at most
SHARE = 1 / 12  # of the budget, for each of the curves
SHORTEST_S, LONGEST_S = 1.0, 20.0


def race(course: Course, changed: Values) -> Steps[TimeToLoss]:
    """What is kept at the script's own batch against the same at the changed one, for the same seconds of the loop."""
    own = {name: value for name, value in changed.items() if name != "batch_size"}
    seconds = min(LONGEST_S, max(SHORTEST_S, SHARE * course.plan.budget_s))
    pairs: list[tuple[LossCurve, LossCurve]] = []
    for number in range(SEEDS):
        course.pending = 2 * (SEEDS - number)
        plain = yield from course.ask_curve(own, 1000 * number, seconds, STEPS)
        if plain is None:
            break
        # A little longer than the plain one: what comes to the goal in the last moment has come to it.
        other = yield from course.ask_curve(changed, 1000 * number, 1.02 * plain.seconds[-1], 10 * STEPS)
        if other is None:
            break
        pairs.append((plain, other))
    return judge(pairs)
