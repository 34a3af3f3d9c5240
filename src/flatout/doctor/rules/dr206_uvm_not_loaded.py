"""DR206 uvm-not-loaded: nvidia-smi works, CUDA does not: its second kernel module is missing."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import (
    UNKNOWN_ERRORS,
    cuda_codes,
    cuda_fails,
    cuda_works,
    driver_answers,
    in_container,
    known,
    modules,
    symptom,
    system,
)
from flatout.machine.machine_facts import Facts

# Errors that say what is wrong by themselves, and it is not this.
OTHER_CODES = frozenset({2, 35, 36, 46, 214, 802, 803, 804})


def check(facts: Facts) -> Finding | None:
    if system(facts) != "Linux" or facts.system.wsl is True or cuda_works(facts):
        return None
    codes = cuda_codes(facts)
    if driver_answers(facts) is False or codes & OTHER_CODES or not (cuda_fails(facts) or facts.source == "pasted"):
        return None
    if 100 in codes and any(name.endswith("VISIBLE_DEVICES") for name in facts.application.environment):
        return None  # masked: nothing was started that would have loaded the module
    loaded = modules(facts)
    module_gone = loaded is not None and "nvidia" in loaded and "nvidia_uvm" not in loaded
    node_gone = _node_gone(facts)
    unknown = bool(codes & UNKNOWN_ERRORS)
    # Every start of CUDA loads the module where it can, so that it is still absent after a failed start is the cause.
    gone = (module_gone or node_gone) and (cuda_fails(facts) or module_gone)
    certain = gone and driver_answers(facts) is True
    likely = driver_answers(facts) is True and cuda_fails(facts) and symptom(facts, "after-kernel-update") is not None
    in_box = unknown and in_container(facts)
    if not gone and not likely and not in_box:
        return None
    return RULE.found(
        *_steps(facts),
        certain=certain,
        module="nvidia_uvm",
        cuda_error=min(codes) if codes else None,
        modules=sorted(name for name in loaded if name.startswith("nvidia")) if loaded is not None else None,
        device_nodes=known(facts.driver.device_nodes),
        smi=facts.driver.smi,
    )


def _node_gone(facts: Facts) -> bool:
    nodes = known(facts.driver.device_nodes)
    return nodes is not None and "/dev/nvidiactl" in nodes and "/dev/nvidia-uvm" not in nodes


def _steps(facts: Facts) -> list[Fix]:
    load = [
        Fix(command="sudo modprobe nvidia_uvm && sudo nvidia-modprobe -u -c=0"),
        Fix(command="sudo dmesg | grep -i uvm | tail"),
    ]
    if in_container(facts):
        return [Fix(text="on-host"), *load, Fix(text="container")]
    return [
        *load,
        Fix(text="kernel"),
        Fix(text="boot"),
        Fix(command="echo nvidia_uvm | sudo tee /etc/modules-load.d/nvidia-uvm.conf"),
    ]


RULE = Rule(
    code="DR206", name="uvm-not-loaded", layer=Layer.DRIVER, check=check, explains=("suspend-resume", "cuda-start-failed")
)
