"""DR203 driver-library-mismatch: the driver was updated under a running kernel module."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import cuda_codes, cuda_works, in_container, known, linux_host, symptom
from flatout.doctor.remedy import restart
from flatout.machine.machine_facts import Facts
from flatout.machine.versions import parse

SYSTEM_DRIVER_MISMATCH = 803

RELOAD = "sudo rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia && nvidia-smi"


def check(facts: Facts) -> Finding | None:
    if cuda_works(facts):
        return None
    reported = symptom(facts, "nvml-version-mismatch")
    said = reported is not None or facts.driver.nvml_error == "nvml-version-mismatch"
    differ = facts.driver.nvml_error != "none" and _differ(facts)
    code = SYSTEM_DRIVER_MISMATCH in cuda_codes(facts)
    if not said and not differ and not code:
        return None
    library = reported.params.get("library") if reported else None
    return RULE.found(
        *_steps(facts),
        certain=said or differ,
        library=library or known(facts.driver.version) or "?",
        kernel_module=known(facts.driver.kernel_version) or "?",
        nvml_error=facts.driver.nvml_error,
        cuda_error=SYSTEM_DRIVER_MISMATCH if code else None,
    )


def _differ(facts: Facts) -> bool:
    """Both versions are known and are not one: NVML shortens its own (550.144), so as far as both go."""
    if facts.system.wsl is True:
        return False  # there the library is Linux's and the driver is of Windows: never the same number
    library, module = parse(known(facts.driver.version) or ""), parse(known(facts.driver.kernel_version) or "")
    length = min(len(library), len(module))
    return length > 0 and library[:length] != module[:length]


def _steps(facts: Facts) -> list[Fix]:
    if in_container(facts):
        return [Fix(text="container"), restart(facts)]
    if not linux_host(facts):
        return [restart(facts), Fix(text="still")]
    return [restart(facts), Fix(text="without-restart"), Fix(command=RELOAD), Fix(text="still")]


RULE = Rule(
    code="DR203",
    name="driver-library-mismatch",
    layer=Layer.DRIVER,
    check=check,
    explains=(
        "no-driver",
        "kernel-module-missing",
        "driver-not-answering",
        "uvm-not-loaded",
        "suspend-resume",
        "smi-unusable",
        "cuda-start-failed",
    ),
)
