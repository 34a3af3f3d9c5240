"""PT414 wrong-vendor-build: torch was built for the cards of another maker than the one in this machine."""

from __future__ import annotations

from flatout.doctor import queries
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.remedy import reinstall_torch
from flatout.machine.machine_facts import Facts


def check(facts: Facts) -> Finding | None:
    if facts.torch.available is True or queries.system(facts) == "Darwin":
        return None
    rocm = queries.known(facts.torch.hip) not in (None, "none")
    cuda = queries.known(facts.torch.cuda) not in (None, "none")
    vendors = _vendors(facts)
    if vendors is None or rocm == cuda:
        return None
    built_for, wanted = ("amd", "nvidia") if rocm else ("nvidia", "amd")
    if built_for in vendors:
        return None
    if wanted in vendors:
        steps = reinstall_torch(facts) if wanted == "nvidia" else [Fix(text="rocm-wheel")]
    elif "intel" in vendors:
        wanted, steps = "intel", [Fix(text="xpu-wheel")]
    else:
        return None
    return RULE.found(*steps, built_for=built_for, vendor=wanted, gpu=vendors[wanted], torch=facts.torch.version)


def _vendors(facts: Facts) -> dict[str, str] | None:
    """Maker and name of each card that is worth a build: discrete ones; None where nobody looked."""
    pci = queries.known(facts.hardware.pci)
    if pci is None:
        return None
    counted = [device for device in pci if _counts(device.vendor, device.kind)]
    found = {device.vendor: queries.known(device.name) or device.vendor for device in counted}
    for gpu in queries.gpus(facts):
        found.setdefault(gpu.vendor, gpu.name)
    return found


def _counts(vendor: str, kind: str) -> bool:
    """An NVIDIA device always; another maker's only where somebody knows that it is a card."""
    return vendor == "nvidia" or kind == "discrete"


RULE = Rule(
    code="PT414",
    name="wrong-vendor-build",
    layer=Layer.PYTORCH,
    check=check,
    explains=("cuda-start-failed", "no-driver"),
)
