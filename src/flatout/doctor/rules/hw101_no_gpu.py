"""HW101 no-gpu: no graphics card that PyTorch could use is on the bus."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import any_nvidia_gpu, cuda_works, driver_answers, known, system
from flatout.machine.machine_facts import Facts

USABLE = ("nvidia", "amd", "intel")  # vendors with a torch build of their own

MICROSOFT = "1414"  # what stands on the bus of WSL or Hyper-V for a card of Windows


def check(facts: Facts) -> Finding | None:
    bus = known(facts.hardware.pci)
    if bus is None or facts.source != "probed" or system(facts) == "Darwin" or facts.system.wsl is True:
        return None  # nobody looked, or the card is not on a bus that can be seen from here
    if any(device.vendor == "apple" or device.vendor_id == MICROSOFT for device in bus):
        return None
    if any_nvidia_gpu(facts) or cuda_works(facts) or driver_answers(facts):
        return None
    if any(device.vendor in USABLE and not _integrated(device.vendor, device.kind) for device in bus):
        return None
    return RULE.found(
        Fix(text="seat"),
        Fix(text="firmware"),
        Fix(text="windows" if system(facts) == "Windows" else "bus"),
        Fix(text="cloud"),
        Fix(text="cpu"),
        display_devices=len(bus),
        devices=[known(device.name) or device.vendor for device in bus],
    )


def _integrated(vendor: str, kind: str) -> bool:
    """Intel's are integrated unless somebody knows better; AMD's are cards unless somebody knows better."""
    return kind == "integrated" or (vendor == "intel" and kind != "discrete")


RULE = Rule(
    code="HW101",
    name="no-gpu",
    layer=Layer.HARDWARE,
    check=check,
    explains=(
        "no-driver",
        "kernel-module-missing",
        "secure-boot",
        "driver-not-answering",
        "container-no-gpu-flag",
        "cuda-start-failed",
    ),
)
