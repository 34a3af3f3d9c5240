"""AP524 throttled-run: heat or power held the card's clocks back while the script ran."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import HELD_BACK
from flatout.machine.machine_facts import Facts
from flatout.machine.run_look import GpuDuring

# A single hot second in a long run is nothing; neither is one look of two.
HELD_SHARE = 0.1
FEWEST_LOOKS = 5


def check(facts: Facts) -> Finding | None:
    watched = [(gpu.during, _held(gpu.during)) for gpu in facts.application.run.gpus if gpu.used and gpu.during is not None]
    worst, share = max(watched, key=lambda pair: pair[1], default=(None, 0.0))
    if worst is None or share < HELD_SHARE:
        return None
    reasons = sorted(name for name, count in worst.held_back.items() if name in HELD_BACK and count)
    heat = any("THERMAL" in name for name in reasons)
    return RULE.found(
        Fix(command="nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE"),
        Fix(text="heat" if heat else "power"),
        Fix(text="steady"),
        severity=Severity.SLOW,
        gpu=worst.name,
        reasons=reasons,
        share=round(100 * share),
        looks=worst.working,
        temperature_c=worst.temperature_max_c,
        clock_mhz=worst.sm_clock_held_mhz,
        clock_max_mhz=worst.sm_clock_max_mhz,
    )


def _held(during: GpuDuring) -> float:
    """The share of the looks at work at which heat or power held it back; a full load at its power limit is no fault."""
    if during.working < FEWEST_LOOKS:
        return 0.0
    looks = max((count for name, count in during.held_back.items() if name in HELD_BACK), default=0)
    return looks / during.working


RULE = Rule(
    code="AP524",
    name="throttled-run",
    layer=Layer.APPLICATION,
    check=check,
    explains=("performance-falling",),
)
