"""Questions that several rules ask of the facts. Each answers None or False where the facts do not say."""

from __future__ import annotations

from typing import TypeVar

from flatout.base.records import Missing
from flatout.machine import cards
from flatout.machine.model import Facts, Gpu, Symptom

T = TypeVar("T")


def known(value: T | Missing) -> T | None:
    """The value, or None where it is missing."""
    return None if isinstance(value, Missing) else value


def symptom(facts: Facts, *codes: str) -> Symptom | None:
    """The first recognised message with one of these codes."""
    return next((symptom for symptom in facts.symptoms if symptom.code in codes), None)


def gpus(facts: Facts) -> list[Gpu]:
    return known(facts.driver.gpus) or []


def any_nvidia_gpu(facts: Facts) -> str | None:
    """The name of an NVIDIA card that some witness has seen: the driver, the PCI bus, or torch itself."""
    for gpu in gpus(facts):
        if gpu.vendor == "nvidia":
            return gpu.name
    for device in known(facts.hardware.pci) or []:
        if device.vendor == "nvidia":
            return known(device.name) or "NVIDIA GPU"
    for name in known(facts.torch.devices) or []:
        return name
    return None


def capability(facts: Facts) -> str | None:
    """Compute capability of the card that matters: as the driver or torch says, else by its name."""
    for gpu in gpus(facts):
        if gpu.vendor == "nvidia":
            return known(gpu.capability) or cards.capability_of(gpu.name)
    for value in known(facts.torch.capabilities) or []:
        return value
    name = any_nvidia_gpu(facts)
    return cards.capability_of(name) if name else None


def error_code(facts: Facts) -> int | None:
    """The CUDA error that starting CUDA gave, whoever saw it."""
    code = known(facts.cuda.init_code)
    if code:
        return code
    return known(facts.torch.error_code)


def system(facts: Facts) -> str:
    """Linux where nothing says otherwise: most pastes come from there, and WSL is Linux."""
    return known(facts.system.name) or "Linux"
