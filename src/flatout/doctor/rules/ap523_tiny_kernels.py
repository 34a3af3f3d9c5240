"""AP523 tiny-kernels: the processor launches the GPU's work more slowly than the GPU does it."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import any_nvidia_gpu, known, starved_share
from flatout.machine.machine_facts import Facts

WITH_GRAPHS = ("graphs", "reduce-overhead", "max-autotune")
HOST_PHASES = ("forward", "backward", "optimizer", "script")


def check(facts: Facts) -> Finding | None:
    run = facts.application.run
    starved, regime = starved_share(facts), run.device.regime
    if run.bound_by != "launch" or starved is None:
        return None
    kernels, step = known(run.device.kernels_per_step), run.step_s
    compiled = "compile" in run.knobs or (regime is not None and regime.compiled is True)
    recorded = run.knobs.get("compile") in WITH_GRAPHS
    return RULE.found(
        *([] if compiled else [Fix(text="compile")]),
        *([] if recorded else [Fix(text="graphs")]),
        *([] if "fused_optimizer" in run.knobs else [Fix(text="fused")]),
        Fix(text="batch"),
        severity=Severity.SLOW,
        gpu=any_nvidia_gpu(facts) or "GPU",
        starved=round(100 * starved),
        step_ms=round(1e3 * step, 2) if step else None,
        kernels_per_step=round(kernels) if kernels else None,
        share=round(100 * sum(run.shares.get(name, 0.0) for name in HOST_PHASES)),
        compiled=compiled,
    )


RULE = Rule(
    code="AP523",
    name="tiny-kernels",
    layer=Layer.APPLICATION,
    check=check,
    explains=("low-utilisation",),
    knobs=("compile", "fused_optimizer", "batch_size"),
)
