"""DR208 container-no-gpu-flag: the container was started without the GPU."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import (
    bus_without_nvidia,
    cuda_fails,
    cuda_works,
    driver_answers,
    in_container,
    known,
    modules,
    on_bus,
    symptom,
)
from flatout.machine.machine_facts import Facts, Symptom

COMMANDS = {
    "docker": "docker run --gpus all IMAGE nvidia-smi",
    "podman": "podman run --device nvidia.com/gpu=all IMAGE nvidia-smi",
}

SILENT = ("found-no-driver", "smi-not-found", "no-cuda-gpus")


def check(facts: Facts) -> Finding | None:
    banner = _banner(facts)
    # In a paste the nvidia-smi that works may be the host's.
    missing = banner or (facts.source == "pasted" and symptom(facts, "found-no-driver"))
    if cuda_works(facts) or (driver_answers(facts) and not missing) or symptom(facts, "docker-no-device-driver"):
        return None
    if not in_container(facts) and banner is None:
        return None
    if bus_without_nvidia(facts) and banner is None:
        return None  # the host has no card to give
    nodes = known(facts.driver.device_nodes)
    without = nodes is not None and not any(node.startswith(("/dev/nvidia", "/dev/dxg")) for node in nodes)
    if (nodes is not None and not without) or not (without or banner or _missed(facts)):
        return None
    host = on_bus(facts) is not None or "nvidia" in (modules(facts) or ())  # both show through from the host
    if facts.source == "probed" and not host and facts.system.wsl is not True:
        return None
    return RULE.found(
        *_steps(facts),
        # Docker Desktop hides whether Windows has a card at all: then it is only worth saying.
        severity=Severity.FAULT if host or banner or facts.source == "pasted" else Severity.NOTE,
        certain=banner is not None or (without and host),
        container=known(facts.system.container) or "docker",
        device_nodes=len(nodes) if nodes is not None else None,
        symptom=banner.code if banner else None,
        visible_devices=facts.application.environment.get("NVIDIA_VISIBLE_DEVICES"),
    )


def _banner(facts: Facts) -> Symptom | None:
    """The image's own word, or a command line that asks for no GPU where one is missed."""
    flagless = symptom(facts, "docker-run-without-gpus")
    return symptom(facts, "container-driver-not-detected") or (flagless if flagless and cuda_fails(facts) else None)


def _missed(facts: Facts) -> bool:
    """Somebody looked for the driver in the container and did not find it."""
    if facts.driver.smi == "not-found" or facts.driver.nvml_error == "nvml-library-not-found":
        return True
    return symptom(facts, *SILENT) is not None


def _steps(facts: Facts) -> list[Fix]:
    kind = known(facts.system.container) or "docker"
    host = [Fix(text="host-first")]
    if kind == "kubernetes":
        return [*host, Fix(text="kubernetes"), Fix(command="kubectl describe node | grep nvidia.com/gpu")]
    if kind in ("docker", "podman", "none", "other"):
        return [*host, Fix(text="flag"), Fix(command=COMMANDS.get(kind, COMMANDS["docker"])), Fix(text="compose")]
    return [*host, Fix(text="lxc")]


RULE = Rule(
    code="DR208",
    name="container-no-gpu-flag",
    layer=Layer.DRIVER,
    check=check,
    explains=("no-driver", "kernel-module-missing", "driver-not-answering", "cuda-start-failed"),
)
