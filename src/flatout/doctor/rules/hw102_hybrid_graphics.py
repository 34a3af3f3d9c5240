"""HW102 hybrid-graphics: a laptop runs on its integrated graphics, and the discrete card is switched off."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import bus_without_nvidia, cuda_works, driver_answers, gpus, known, symptom, system
from flatout.machine.machine_facts import Facts

OFF = ("eco", "integrated")

# A driver of NVIDIA's is there and finds nothing to drive.
NO_DEVICE = ("smi-no-devices", "smi-failed", "no-cuda-gpus")


def check(facts: Facts) -> Finding | None:
    if cuda_works(facts) or (driver_answers(facts) and gpus(facts)):
        return None  # asleep (D3cold) is not off: the driver wakes it
    switch = known(facts.hardware.gpu_switch)
    reported = symptom(facts, "gpu-switched-off")
    vanished = _vanished(facts)
    if switch not in OFF and not reported and not vanished:
        return None
    return RULE.found(
        *_steps(facts),
        certain=switch in OFF or reported is not None,
        gpu_switch=switch if switch in OFF else "off",
        symptom=reported.code if reported else None,
        devices=[known(device.name) or device.vendor for device in known(facts.hardware.pci) or []] or None,
    )


def _vanished(facts: Facts) -> bool:
    """A laptop with an NVIDIA driver and no NVIDIA card on the bus: it was there when the driver was installed."""
    if facts.hardware.laptop is not True or not bus_without_nvidia(facts):
        return False
    return (
        known(facts.driver.nvml_error) == "nvml-driver-not-loaded"
        or facts.driver.module_installed is True
        or known(facts.driver.smi) == "failed"
        or facts.driver.gpus == []  # it answers, and has nothing to drive
        or symptom(facts, *NO_DEVICE) is not None
    )


def _steps(facts: Facts) -> list[Fix]:
    if system(facts) == "Windows":
        return [Fix(text="windows-mode"), Fix(text="windows-devices"), Fix(text="reset"), Fix(text="check")]
    return [
        Fix(text="linux-mode"),
        Fix(command="sudo prime-select on-demand && sudo reboot"),
        Fix(command="sudo supergfxctl --mode Hybrid"),
        Fix(text="reset"),
        Fix(text="check"),
    ]


RULE = Rule(
    code="HW102",
    name="hybrid-graphics",
    layer=Layer.HARDWARE,
    check=check,
    explains=("no-gpu", "no-driver", "kernel-module-missing", "driver-not-answering", "cuda-start-failed"),
)
