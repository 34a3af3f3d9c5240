"""What costs time once, in a run of unknown length: from which step on a run under the profile has it.

A short run would never earn back what compiling costs, and nobody knows whether this one is short. So it comes on when the loop
has lost as much by its lack as it costs: whatever the length turns out to be, that is at most twice what the better choice of
the two would have cost. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from flatout.base.records import Missing
from flatout.measure.promise import PutOff
from flatout.tune.confirmation.compare_whole_runs import Once
from flatout.tune.confirmation.whole_run_promise import Confirmed

LEAST_S = 1.0  # what costs less comes on with everything else


def put_off(found: Confirmed, once: Mapping[str, Once], unit_steps: float | None) -> dict[str, PutOff]:
    """By knob. `unit_steps`: of an epoch, or of the stretch that the promise is for."""
    plain, tuned = found.plain, found.tuned
    if found.code != "confirmed" or found.epochs is not None or plain is None or tuned is None or not unit_steps:
        return {}
    costs_s = tuned.once["building"].value - plain.once["building"].value
    names = [name for name in once if name in found.knobs]
    if len(names) != 1 or "batch_size" in found.knobs or costs_s < LEAST_S:
        return {}
    saves_s = _saves_s(found, once[names[0]], tuned.each["steps"].value / unit_steps)
    if saves_s <= 0:
        return {}
    step = (found.put_on_step or 0) + math.ceil(costs_s / saves_s)
    return {names[0]: PutOff(step=step, costs_s=costs_s, saves_s=saves_s)}


def _saves_s(found: Confirmed, seen: Once, step_s: float) -> float:
    """In a step. Where it is not known what it gave alone: what all gave together, so it comes too soon rather than late."""
    if seen.gain is not None:
        return step_s * (seen.gain - 1)
    return 0.0 if isinstance(found.plain_step_s, Missing) else found.plain_step_s - step_s
