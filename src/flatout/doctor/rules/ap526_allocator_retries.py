"""AP526 allocator-retries: the card is so full that torch must give its cache back and ask again, in the middle of training."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import gib, known
from flatout.doctor.remedy import set_variable
from flatout.machine.machine_facts import Facts

# One or two while a loop finds its sizes cost a moment once.
FEWEST = 3


def check(facts: Facts) -> Finding | None:
    run = facts.application.run
    memory = run.device.memory
    if memory is None or memory.retries < FEWEST or run.out_of_memory is not None:
        return None  # where it ended in an error, that is the finding
    return RULE.found(
        Fix(text="room"),
        set_variable(facts, "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        Fix(text="shapes"),
        severity=Severity.SLOW,
        retries=memory.retries,
        steps=known(run.steps) or 0,
        peak_gib=gib(known(memory.peak_bytes)),
        peak_reserved_gib=gib(known(memory.peak_reserved_bytes)),
        total_gib=gib(known(memory.total_bytes)),
    )


RULE = Rule(
    code="AP526",
    name="allocator-retries",
    layer=Layer.APPLICATION,
    check=check,
    knobs=("batch_size", "precision"),
)
