"""AP517 full-precision: the script trains in fp32 on a card with tensor cores. A note: only measuring tells the price."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import any_nvidia_gpu, capability, known, tensor_cores
from flatout.doctor.remedy import observe
from flatout.machine.machine_facts import Facts
from flatout.machine.versions import at_least

TENSOR_CORES_SINCE, BF16_SINCE = "7.0", "8.0"


def check(facts: Facts) -> Finding | None:
    return _measured(facts) or _told(facts)


def _measured(facts: Facts) -> Finding | None:
    """Only where computing takes the time: a loop that waits for something else gains nothing, or becomes slower."""
    run = facts.application.run
    regime = run.device.regime
    if regime is None or run.bound_by not in ("compute", "memory"):
        return None
    if "precision" in run.knobs or regime.autocast is not False or known(regime.dtype) != "float32":
        return None
    number = known(regime.capability) or capability(facts)
    if number is None or not at_least(number, TENSOR_CORES_SINCE) or not tensor_cores(facts):
        return None
    kind = "bf16" if at_least(number, BF16_SINCE) else "fp16"
    return RULE.found(
        Fix(text=kind),
        Fix(text="measure"),
        severity=Severity.SLOW,
        gpu=any_nvidia_gpu(facts) or "GPU",
        capability=number,
        precision=kind,
        dtype=regime.dtype,
        share=round(100 * (1 - run.shares.get("input", 0.0) - run.shares.get("copy", 0.0))),
    )


def _told(facts: Facts) -> Finding | None:
    script, gpu, number = facts.application.script, any_nvidia_gpu(facts), capability(facts)
    if script.mixed_precision is not False or gpu is None or number is None or not at_least(number, TENSOR_CORES_SINCE):
        return None
    if not tensor_cores(facts):
        return None
    kind = "bf16" if at_least(number, BF16_SINCE) else "fp16"
    steps = (Fix(text=kind), Fix(text="measure"), *observe(facts))
    return RULE.found(
        *steps, severity=Severity.NOTE, gpu=gpu, capability=number, precision=kind, line=script.lines.get("mixed_precision")
    )


RULE = Rule(code="AP517", name="full-precision", layer=Layer.APPLICATION, check=check, knobs=("precision",))
