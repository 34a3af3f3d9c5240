"""PT401 cpu-only-wheel: torch was built without any GPU support, on a machine that has a GPU for it."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.remedy import reinstall_torch
from flatout.doctor.seen import any_nvidia_gpu, known, symptom
from flatout.machine.model import Facts


def check(facts: Facts) -> Finding | None:
    cpu_build = facts.torch.cuda == "none" and known(facts.torch.hip) in (None, "none")
    if not cpu_build and not symptom(facts, "torch-not-compiled-with-cuda"):
        return None
    gpu = any_nvidia_gpu(facts)
    if gpu is None and facts.source == "probed":
        return None  # a CPU build on a machine without a GPU is what it should be
    return RULE.found(
        *reinstall_torch(facts),
        Fix(text="check"),
        certain=gpu is not None,
        version=facts.torch.version,
        gpu=gpu,
        python=facts.python.path,
    )


RULE = Rule(
    code="PT401",
    name="cpu-only-wheel",
    layer=Layer.PYTORCH,
    check=check,
)
