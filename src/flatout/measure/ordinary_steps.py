"""What does not belong to every step: an evaluation, a checkpoint, a log, a stall of the machine.

A segment is judged by its ordinary steps. A step far outside the others of its segment holds something else as well: what it
takes beyond an ordinary one is set apart. Waiting for the loader is never set apart: workers deliver in bursts, and a training
pays for every wait. Where more than a few steps are long, the long ones are part of the ordinary loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from flatout.base.records import Struct

FEWEST_STEPS = 6
FAR = 8.0  # standard deviations, as the middle of the steps tells them …
LEAST = 1.0  # … and never less than another ordinary step
CUT_OFF = 4.0  # standard deviations
RARE = 0.15  # of the steps
FROM_DEVIATION = 1.4826  # of a normal distribution's median absolute deviation to its standard deviation


def centre(times: Sequence[float], waits: Sequence[float]) -> float | None:
    """Seconds of an ordinary step: the mean of the middle half of the steps without their waits, and the mean of all waits.

    What another program does meanwhile moves it little. None where there are too few steps to leave any out.
    """
    own = sorted(max(0.0, time - wait) for time, wait in zip(times, waits, strict=True))
    if len(own) < FEWEST_STEPS:
        return None
    cut = len(own) // 4
    inner = own[cut : len(own) - cut]
    return math.fsum(inner) / len(inner) + math.fsum(waits) / len(waits)


def centre_by_device(times: Sequence[float], waits: Sequence[float]) -> float | None:
    """The same where a card's events tell how long a step took.

    The host may wait for a batch while the device still works: a wait is no longer than its step then, and only what is far
    above the middle is cut off.
    """
    if len(times) < FEWEST_STEPS:
        return None
    shown = [min(time, wait) for time, wait in zip(times, waits, strict=True)]
    own = [time - wait for time, wait in zip(times, shown, strict=True)]
    middle = median(own)
    limit = middle + max(CUT_OFF * FROM_DEVIATION * median(abs(one - middle) for one in own), LEAST / 2 * middle)
    return math.fsum(min(one, limit) + wait for one, wait in zip(own, shown, strict=True)) / len(times)


class SetApart(Struct, frozen=True):
    seconds: float = 0.0
    steps: int = 0


def set_apart(times: Sequence[float], waits: Sequence[float]) -> SetApart:
    """The seconds beyond ordinary steps, and in how many steps; `waits` is the part of `times` spent waiting for batches."""
    own = [max(0.0, time - wait) for time, wait in zip(times, waits, strict=True)]
    if len(own) < FEWEST_STEPS:
        return SetApart()
    middle = median(own)
    deviation = FROM_DEVIATION * median(abs(one - middle) for one in own)
    limit = middle + max(FAR * deviation, LEAST * middle)
    far = [one - middle for one in own if one > limit]
    if len(far) > max(1, RARE * len(own)):
        return SetApart()
    return SetApart(math.fsum(far), len(far))
