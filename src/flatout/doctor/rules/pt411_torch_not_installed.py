"""PT411 torch-not-installed: the interpreter that was asked has no torch."""

from __future__ import annotations

from flatout.doctor import queries
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.remedy import pip, reinstall_torch
from flatout.machine.machine_facts import Facts


def check(facts: Facts) -> Finding | None:
    if facts.torch.status != "not-installed":
        return None
    gpu = queries.any_nvidia_gpu(facts)
    without_gpu = facts.source == "probed" and gpu is None
    steps = [pip(facts, "install torch")] if without_gpu else reinstall_torch(facts)
    return RULE.found(
        Fix(text="other-interpreter"),
        *steps,
        certain=True,
        python=facts.python.path,
        version=facts.python.version,
        gpu=gpu,
    )


RULE = Rule(
    code="PT411",
    name="torch-not-installed",
    layer=Layer.PYTORCH,
    check=check,
    explains=("cuda-start-failed",),
)
