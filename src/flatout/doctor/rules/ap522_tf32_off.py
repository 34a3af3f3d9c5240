"""AP522 tf32-off: fp32 matrix products run on the slow path of a card that has TF32, and computing is what takes the time."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import any_nvidia_gpu, capability, known, tensor_cores
from flatout.machine.machine_facts import Facts
from flatout.machine.versions import at_least

TF32_SINCE = "8.0"


def check(facts: Facts) -> Finding | None:
    run = facts.application.run
    regime = run.device.regime
    if regime is None or run.bound_by != "compute" or regime.tf32 is not False or {"tf32", "precision"} & run.knobs.keys():
        return None
    # Inside autocast the matrix products are 16 bits wide, and TF32 has nothing left to do.
    if regime.autocast is True or known(regime.dtype) != "float32":
        return None
    number = known(regime.capability) or capability(facts)
    if number is None or not at_least(number, TF32_SINCE) or not tensor_cores(facts):
        return None
    return RULE.found(
        Fix(text="precision"),
        Fix(text="convolutions"),
        Fix(text="measure"),
        severity=Severity.SLOW,
        gpu=any_nvidia_gpu(facts) or "GPU",
        capability=number,
        dtype=regime.dtype,
        share=round(100 * (1 - run.shares.get("input", 0.0) - run.shares.get("copy", 0.0))),
    )


RULE = Rule(code="AP522", name="tf32-off", layer=Layer.APPLICATION, check=check, knobs=("tf32",))
