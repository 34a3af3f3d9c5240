"""DR202 kernel-module-missing: the driver is installed, but the running kernel has no module of it."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import (
    any_nvidia_gpu,
    bus_without_nvidia,
    cuda_fails,
    cuda_works,
    driver_answers,
    known,
    linux_host,
    modules,
    symptom,
)
from flatout.doctor.remedy import DRIVER_COMMANDS, MODULE_COMMANDS, by_distribution
from flatout.machine.machine_facts import Facts

# Whichever distribution it is: what dkms knows, and what the kernel answers.
LOOK = "dkms status; sudo modprobe nvidia; sudo dmesg | grep -i nvidia | tail"


def check(facts: Facts) -> Finding | None:
    if not linux_host(facts) or cuda_works(facts) or driver_answers(facts):
        return None
    if bus_without_nvidia(facts):
        return None  # nothing for the module to drive
    loaded = modules(facts)
    if loaded is not None and ("nvidia" in loaded or "nouveau" in loaded):
        return None
    updated = symptom(facts, "after-kernel-update") is not None
    guessed = updated and driver_answers(facts) is None and cuda_fails(facts)
    if not guessed and (not _installed(facts) or not (_unloaded(facts) or updated)):
        return None
    return RULE.found(
        *_steps(facts),
        certain=facts.driver.module_installed is False or (updated and not guessed),
        kernel=known(facts.system.release) or "?",
        module_installed=facts.driver.module_installed,
        nvml_error=facts.driver.nvml_error,
        smi=known(facts.driver.smi) or ("failed" if symptom(facts, "smi-failed") else None),
        symptom="after-kernel-update" if updated else None,
    )


def _installed(facts: Facts) -> bool:
    """The half of the driver that programs use is here: nvidia-smi ran, or NVML's library was loaded."""
    return (
        known(facts.driver.smi) in ("failed", "timeout")
        or facts.driver.nvml_error == "nvml-driver-not-loaded"
        or (facts.driver.module_installed is True and (facts.source == "pasted" or any_nvidia_gpu(facts) is not None))
        or symptom(facts, "smi-failed") is not None
        or (facts.source == "pasted" and facts.driver.module_installed is False and not symptom(facts, "smi-not-found"))
    )


def _unloaded(facts: Facts) -> bool:
    """The other half does not answer."""
    if (
        modules(facts) is not None
        or facts.driver.module_installed is False
        or facts.driver.nvml_error == "nvml-driver-not-loaded"
    ):
        return True
    return symptom(facts, "smi-failed") is not None or facts.driver.smi == "failed"


def _steps(facts: Facts) -> list[Fix]:
    if facts.driver.module_installed is True:
        return [Fix(command=LOOK), Fix(text="refused"), Fix(command="sudo reboot")]
    rebuild = by_distribution(facts, MODULE_COMMANDS)
    again = by_distribution(facts, DRIVER_COMMANDS)
    return [
        Fix(text="rebuild"),
        Fix(command=rebuild or LOOK),
        Fix(text="reinstall"),
        *([Fix(command=again)] if again else []),
        Fix(text="previous-kernel"),
    ]


RULE = Rule(
    code="DR202",
    name="kernel-module-missing",
    layer=Layer.DRIVER,
    check=check,
    explains=("no-driver", "uvm-not-loaded", "cuda-start-failed"),
)
