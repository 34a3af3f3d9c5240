"""AP525 host-swapping: main memory was too small while the script ran, and pages came back from the disk."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import gib, known
from flatout.machine.machine_facts import Facts

# Pages that come back were needed; what only goes out is often asleep. Less than this is lost in a disk's daily business.
SWAPPED_BYTES = 256 << 20
SWAPPED_BYTES_A_SECOND = 4 << 20


def check(facts: Facts) -> Finding | None:
    run = facts.application.run
    back, wall = known(run.host.swapped_in_bytes), known(run.wall_s)
    if back is None or not wall or back < SWAPPED_BYTES or back / wall < SWAPPED_BYTES_A_SECOND:
        return None
    workers = max((known(use.workers) or 0 for use in run.loaders), default=0)
    return RULE.found(
        *([Fix(text="workers", params={"workers": workers})] if workers else []),
        Fix(text="dataset"),
        Fix(text="others"),
        severity=Severity.SLOW,
        certain=False,  # the counters are the whole machine's: another program may have swapped
        swapped_in_gib=gib(back),
        swapped_out_gib=gib(known(run.host.swapped_out_bytes)),
        mib_a_second=round(back / wall / 2**20, 1),
        available_gib=gib(known(facts.memory.available_bytes)),
        total_gib=gib(known(facts.memory.total_bytes)),
        workers=workers,
    )


RULE = Rule(
    code="AP525",
    name="host-swapping",
    layer=Layer.APPLICATION,
    check=check,
    explains=("dataloader-bottleneck", "performance-falling"),
    knobs=("workers", "prefetch_factor", "pin_memory"),
)
