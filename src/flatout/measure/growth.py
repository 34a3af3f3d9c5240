"""Detects a memory leak: does the memory in use at the end of each step keep growing?"""

from __future__ import annotations

from statistics import median

from flatout.machine.run_look import MemoryGrowth
from flatout.measure.trend import theil_sen

# The optimizer's state, workspaces and caches come with the first steps: that rise is no leak.
SETTLING = 0.25
FEWEST_POINTS = 12


def grown(points: list[tuple[int, int]]) -> MemoryGrowth | None:
    """None where too few points are known to say anything."""
    ordered = sorted(points)
    if not ordered:
        return None
    first, last = ordered[0][0], ordered[-1][0]
    settled = [point for point in ordered if point[0] >= first + SETTLING * (last - first)]
    trend = theil_sen([(float(step), float(used)) for step, used in settled])
    if len(settled) < FEWEST_POINTS or trend is None:
        return None
    third = max(1, len(settled) // 3)
    values = [used for _, used in settled]
    start, end = median(values[:third]), median(values[-third:])
    middle = median(values[third:-third] or values)
    return MemoryGrowth(
        bytes_per_step=trend.slope,
        low_bytes_per_step=trend.low,
        significance=round(trend.significance, 2),
        grown_bytes=int(end - start),
        late_bytes=int(end - middle),
        steps=settled[-1][0] - settled[0][0],
        points=len(settled),
    )
