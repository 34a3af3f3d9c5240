"""DR210 container-cgroup: a running container lost the right to open its GPU."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import cuda_works, in_container, known, symptom, system
from flatout.machine.machine_facts import Facts

# The kernel refuses to open the device, and NVML has no better name for that.
REFUSED = ("nvml-unknown-error", "nvml-unknown", "nvml-error", "nvml-no-permission")


def check(facts: Facts) -> Finding | None:
    if system(facts) != "Linux" or facts.system.container == "none" or cuda_works(facts):
        return None
    reloaded = symptom(facts, "after-container-reload") is not None
    said = symptom(facts, "nvml-unknown-error") is not None or facts.driver.nvml_error in REFUSED
    if not reloaded and not said:
        return None
    nodes = known(facts.driver.device_nodes)
    if nodes is not None and not any(node.startswith("/dev/nvidia") for node in nodes):
        return None  # it never had the GPU (DR208)
    return RULE.found(
        Fix(text="restart"),
        Fix(command="docker restart CONTAINER"),
        Fix(text="links"),
        Fix(command="sudo nvidia-ctk system create-dev-char-symlinks --create-all"),
        Fix(text="cdi"),
        Fix(command="sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"),
        Fix(command="docker run --device nvidia.com/gpu=all IMAGE nvidia-smi"),
        Fix(text="cgroupfs"),
        certain=reloaded or (in_container(facts) and said),
        container=known(facts.system.container) or "docker",
        nvml_error=known(facts.driver.nvml_error) or "nvml-unknown-error",
        device_nodes=len(nodes) if nodes is not None else None,
        symptom="after-container-reload" if reloaded else None,
    )


RULE = Rule(
    code="DR210",
    name="container-cgroup",
    layer=Layer.DRIVER,
    check=check,
    explains=(
        "container-no-gpu-flag",
        "driver-not-answering",
        "no-driver",
        "kernel-module-missing",
        "uvm-not-loaded",
        "cuda-start-failed",
    ),
)
