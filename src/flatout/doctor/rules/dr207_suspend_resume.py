"""DR207 suspend-resume: the driver lost its state while the computer slept."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import (
    UNKNOWN_ERRORS,
    cuda_codes,
    cuda_fails,
    cuda_works,
    driver_answers,
    in_container,
    lost,
    modules,
    symptom,
    system,
)
from flatout.machine.machine_facts import Facts

RELOAD = "sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm"
PRESERVE = "echo 'options nvidia NVreg_PreserveVideoMemoryAllocations=1' | sudo tee /etc/modprobe.d/nvidia-suspend.conf"
SERVICES = "sudo systemctl enable nvidia-suspend.service nvidia-hibernate.service nvidia-resume.service && sudo reboot"


def check(facts: Facts) -> Finding | None:
    if cuda_works(facts) or facts.system.wsl is True or system(facts) == "Darwin":
        return None
    slept = symptom(facts, "after-suspend") is not None
    codes = cuda_codes(facts)
    unknown = bool(codes & UNKNOWN_ERRORS)
    if slept:
        if not cuda_fails(facts) and driver_answers(facts) is not False and not symptom(facts, "gpu-lost"):
            return None
    elif not unknown or in_container(facts) or driver_answers(facts) is False or _without_uvm(facts) or lost(facts):
        return None  # an unknown error with everything loaded: on a desk, sleep is what does that most
    return RULE.found(
        *_steps(facts),
        certain=slept,
        cuda_error=max(codes) if codes else 999,
        symptom="after-suspend" if slept else None,
        smi=facts.driver.smi,
        modules=sorted(name for name in modules(facts) or () if name.startswith("nvidia")) or None,
    )


def _without_uvm(facts: Facts) -> bool:
    loaded = modules(facts)
    return loaded is not None and "nvidia_uvm" not in loaded


def _steps(facts: Facts) -> list[Fix]:
    if system(facts) == "Windows":
        return [Fix(text="restart-windows"), Fix(text="windows-sleep")]
    return [
        Fix(text="close"),
        Fix(command=RELOAD),
        Fix(text="or-restart"),
        Fix(text="prevent"),
        Fix(command=PRESERVE),
        Fix(command=SERVICES),
    ]


RULE = Rule(
    code="DR207",
    name="suspend-resume",
    layer=Layer.DRIVER,
    check=check,
    explains=("xid79-power", "driver-not-answering", "cuda-start-failed"),
)
