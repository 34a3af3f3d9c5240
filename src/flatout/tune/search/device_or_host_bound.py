"""Who sets the pace of the compute side, the device or the host that launches for it."""

from __future__ import annotations

from flatout.base.records import Missing, Struct
from flatout.tune.search.questions_and_answers import SegmentResult

LITTLE = 0.2  # of a step
IDLE = 0.35  # with a kernel for less of the time
WAITING = 0.9  # busy for less of the time: what launches less comes before leaving out what is kept


class Pace(Struct, frozen=True, kw_only=True):
    busy: float | Missing = Missing("not-reported")  # share of the time in which the device worked
    in_stock: float | Missing = Missing("not-reported")  # steps of work that lay ready for it at a step's end
    kernels: float | Missing = Missing("not-reported")  # share of the time in which the driver saw a kernel run

    @property
    def mostly_idle(self) -> bool:
        """Faster kernels gain little then. What the driver tells is of the last second, too: other witnesses must agree."""
        known_busy = isinstance(self.busy, float) and self.busy >= WAITING and not self.keeps_up
        return isinstance(self.kernels, float) and self.kernels < IDLE and not known_busy

    @property
    def keeps_up(self) -> bool:
        """Whether the device is done with a step almost as soon as it is launched: then the host sets the pace, also where
        long last kernels make the device look busy whenever it is looked at."""
        return isinstance(self.in_stock, float) and self.in_stock < LITTLE

    @property
    def waits_for_launches(self) -> bool:
        return self.keeps_up or (isinstance(self.busy, float) and self.busy < WAITING)


def pace_of(result: SegmentResult) -> Pace:
    """A device that sets the pace has as much in stock as the script lets pile up; one that does not, its last kernels."""
    if isinstance(result.behind_s, Missing) or isinstance(result.step_s, Missing):
        return Pace(busy=result.busy, kernels=result.working)
    return Pace(busy=result.busy, in_stock=result.behind_s / result.step_s, kernels=result.working)
