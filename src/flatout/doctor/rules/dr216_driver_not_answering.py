"""DR216 driver-not-answering: the driver is loaded, and does not give the card to anybody."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import any_nvidia_gpu, cuda_works, gpus, in_container, known, modules, on_bus, symptom, system
from flatout.doctor.remedy import install_driver, restart
from flatout.machine import compatibility
from flatout.machine.cards import capability_of
from flatout.machine.machine_facts import Facts
from flatout.machine.versions import parse

# What NVML answers where the driver is there and something in it is broken; silence counts.
BROKEN = ("probe-timeout", "nvml-unknown-error", "nvml-unknown", "nvml-error", "nvml-no-permission")


def check(facts: Facts) -> Finding | None:
    if cuda_works(facts) or in_container(facts) or facts.system.wsl is True or system(facts) == "Darwin":
        return None
    empty = facts.driver.gpus == [] and facts.driver.nvml_error == "none" and on_bus(facts) is not None
    said = symptom(facts, "smi-no-devices", "nvml-unknown-error")
    broken = (
        facts.driver.nvml_error in BROKEN
        and facts.driver.smi != "ok"
        and (on_bus(facts) is not None or "nvidia" in (modules(facts) or ()))
    )
    if (not empty and not broken and said is None) or gpus(facts):
        return None
    limit = _last_driver(facts)
    return RULE.found(
        *([Fix(text="legacy", params={"branch": limit})] if limit else []),
        *([Fix(command="sudo dmesg | grep -iE 'nvrm|nvidia' | tail -20")] if system(facts) == "Linux" else []),
        *([Fix(text="permission")] if facts.driver.nvml_error == "nvml-no-permission" else []),
        restart(facts),
        Fix(text="unplug"),
        Fix(text="clean"),
        *([] if limit else install_driver(facts)),
        Fix(text="open-module"),
        certain=empty or broken,
        gpu=any_nvidia_gpu(facts) or "NVIDIA GPU",
        nvml_error=known(facts.driver.nvml_error) or (said.code if said else "?"),
        driver=facts.driver.version,
        last_branch=limit,
    )


def _last_driver(facts: Facts) -> str | None:
    """The last branch that knows this card, where a newer one is installed."""
    device, version = on_bus(facts), parse(known(facts.driver.version) or "")
    capability = capability_of(known(device.name) or "") if device else None
    last = compatibility.last_driver_of_card(capability) if capability else None
    return last if last and version and version[0] > parse(last)[0] else None


RULE = Rule(
    code="DR216",
    name="driver-not-answering",
    layer=Layer.DRIVER,
    check=check,
    explains=("no-driver", "uvm-not-loaded", "cuda-start-failed"),
)
