"""AP511 out-of-memory: the training needs more memory than the card has. The plain case; special ones explain it away."""

from __future__ import annotations

from flatout.doctor import shortage
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import gib, gpus, kernel_error, known, said
from flatout.machine.machine_facts import Facts


def check(facts: Facts) -> Finding | None:
    short = shortage.read(facts)
    if short is None:
        return None
    cards = [size for gpu in gpus(facts) if (size := known(gpu.memory_total_bytes))]
    total = short.total if short.total is not None else max(cards, default=None)
    steps = [Fix(text="batch")]
    if facts.application.script.mixed_precision is not True:
        steps.append(Fix(text="precision"))
    return RULE.found(
        *steps,
        Fix(text="checkpointing"),
        Fix(text="no-grad"),
        certain=short.allocated is not None and not short.fragmented and not short.held_by_others,
        total_gib=gib(total),
        allocated_gib=gib(short.allocated),
        tried_gib=gib(short.tried),
        free_gib=gib(short.free),
        symptom=said(facts, "out-of-memory", "cuda-error"),
        kernel=kernel_error(facts),
    )


RULE = Rule(code="AP511", name="out-of-memory", layer=Layer.APPLICATION, check=check, knobs=("precision", "batch_size"))
