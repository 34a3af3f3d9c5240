"""DR219 kfd-missing: an AMD card and a ROCm torch, and no /dev/kfd between them."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import in_container, known, on_bus, system
from flatout.machine.machine_facts import Facts

DOCKER = "docker run --device=/dev/kfd --device=/dev/dri --group-add video --group-add render IMAGE"


def check(facts: Facts) -> Finding | None:
    card, nodes = on_bus(facts, "amd"), known(facts.driver.device_nodes)
    if card is None or nodes is None or "/dev/kfd" in nodes or system(facts) != "Linux" or facts.system.wsl is True:
        return None
    if known(facts.torch.hip) in (None, "none") or facts.torch.available is not False or card.kind == "integrated":
        return None
    host = [Fix(command="sudo modprobe amdgpu && ls -l /dev/kfd /dev/dri"), Fix(text="rocm"), Fix(text="groups")]
    return RULE.found(
        *([Fix(text="container"), Fix(command=DOCKER)] if in_container(facts) else host),
        gpu=known(card.name) or "AMD GPU",
        kernel_driver=card.kernel_driver,
        hip=facts.torch.hip,
        device_nodes=len(nodes),
    )


RULE = Rule(code="DR219", name="kfd-missing", layer=Layer.DRIVER, check=check, explains=("cuda-start-failed", "rocm-igpu"))
