"""PT401 cpu-only-wheel: torch was built without any GPU support, on a machine that has a GPU for it."""

from __future__ import annotations

from flatout.doctor import queries
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.remedy import reinstall_torch
from flatout.machine import compatibility
from flatout.machine.machine_facts import Facts


def check(facts: Facts) -> Finding | None:
    not_compiled = queries.symptom(facts, "torch-not-compiled-with-cuda")
    if not queries.cpu_build(facts) and not (not_compiled and queries.build_cuda(facts) is None):
        return None
    if queries.system(facts) == "Darwin" or facts.torch.available is True:
        return None
    gpu = queries.any_nvidia_gpu(facts)
    radeon = _radeon(facts) if facts.torch.hip == "none" else None
    card = queries.capability(facts)
    if gpu and card and not compatibility.served_at_all(card, queries.system(facts)):
        return None  # no build would use this card
    if gpu is None and radeon is None and not _asked_for(facts):
        return None  # a CPU build on a machine without a GPU is what it should be
    repair = reinstall_torch(facts) if gpu or not radeon else [Fix(text="rocm-wheel")]
    return RULE.found(
        *repair,
        Fix(text="check"),
        certain=gpu is not None,
        version=facts.torch.version,
        gpu=gpu or radeon,
        python=facts.python.path,
        installer=facts.torch.installer,
        others=facts.torch.others,
        symptom=not_compiled.code if not_compiled else None,
    )


def _asked_for(facts: Facts) -> bool:
    """In a paste: somebody misses the GPU, or shows nothing but this torch, and nothing says that there is no card."""
    if facts.source == "probed" or queries.known(facts.driver.gpus) == [] or queries.known(facts.hardware.pci) is not None:
        return False
    return queries.complains(facts) or not facts.symptoms


def _radeon(facts: Facts) -> str | None:
    """A discrete AMD card, for which there are builds on Linux."""
    if queries.system(facts) != "Linux":
        return None
    devices = queries.known(facts.hardware.pci) or []
    found = [device for device in devices if device.vendor == "amd" and device.kind == "discrete"]
    return (queries.known(found[0].name) or "AMD GPU") if found else None


RULE = Rule(
    code="PT401",
    name="cpu-only-wheel",
    layer=Layer.PYTORCH,
    check=check,
    explains=("cuda-start-failed", "triton-missing-windows", "torch-import-broken"),
)
