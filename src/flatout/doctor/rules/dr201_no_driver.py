"""DR201 no-driver: the NVIDIA driver is not installed."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import (
    any_nvidia_gpu,
    cuda_codes,
    cuda_works,
    driver_answers,
    gpus,
    in_container,
    known,
    modules,
    symptom,
    system,
)
from flatout.doctor.remedy import install_driver
from flatout.machine.machine_facts import Facts

# Messages of a program that looked for the driver and did not find it.
NOT_FOUND = ("smi-not-found", "found-no-driver")


def check(facts: Facts) -> Finding | None:
    if cuda_works(facts) or driver_answers(facts) or in_container(facts) or facts.system.wsl is True:
        return None
    if system(facts) == "Darwin" or facts.driver.module_installed is True or "nvidia" in (modules(facts) or ()):
        return None
    card, said = any_nvidia_gpu(facts), _said(facts)
    if said is None or (card is None and facts.source == "probed"):
        return None
    return RULE.found(
        *install_driver(facts),
        Fix(text="toolkit"),
        Fix(command="nvidia-smi"),
        certain=card is not None and said not in ("silent", "smi-failed"),
        gpu=card or "NVIDIA GPU",
        witness=said,
        nvml_error=facts.driver.nvml_error,
        toolkits=facts.cuda.toolkits,
    )


def _said(facts: Facts) -> str | None:
    """Who missed the driver."""
    if facts.driver.smi == "not-found" or facts.driver.nvml_error == "nvml-library-not-found":
        return "nvidia-smi-not-found" if facts.driver.smi == "not-found" else "nvml-library-not-found"
    reported = symptom(facts, *NOT_FOUND)
    if reported is not None and known(facts.driver.version) is None and facts.driver.smi != "failed":
        return reported.code
    if system(facts) == "Windows" and (facts.driver.smi == "failed" or symptom(facts, "smi-failed")):
        return "smi-failed"
    return "silent" if _silent(facts) else None


def _silent(facts: Facts) -> bool:
    """A paste where torch with CUDA finds no GPU, gives no reason, and no tool could name a driver or a card."""
    if any(item.code not in ("cuda-not-available", "no-cuda-gpus") for item in facts.symptoms):
        return False
    if any(name.endswith("VISIBLE_DEVICES") for name in facts.application.environment):
        return False
    nothing_known = isinstance(facts.driver.version, Missing) and not gpus(facts) and not cuda_codes(facts)
    asked = facts.torch.available is False and known(facts.torch.cuda) not in (None, "none")
    return facts.source == "pasted" and asked and nothing_known


RULE = Rule(code="DR201", name="no-driver", layer=Layer.DRIVER, check=check, explains=("cuda-start-failed",))
