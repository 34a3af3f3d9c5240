"""DR212 fabric-manager: the GPUs behind NVSwitch wait for a service that is not running."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import cuda_codes, cuda_fails, cuda_works, in_container, known
from flatout.doctor.remedy import by_distribution
from flatout.machine.machine_facts import Facts
from flatout.machine.versions import parse

NOT_READY = 802  # cudaErrorSystemNotReady

START = "sudo systemctl enable --now nvidia-fabricmanager && systemctl status nvidia-fabricmanager"


def check(facts: Facts) -> Finding | None:
    if cuda_works(facts):
        return None  # in a virtual machine with one GPU the host runs the service
    waits = NOT_READY in cuda_codes(facts)
    service = known(facts.driver.fabric_manager)
    down = facts.driver.nvswitch is True and service in ("inactive", "not-installed") and cuda_fails(facts)
    if not waits and not down:
        return None
    return RULE.found(
        *([Fix(text="on-host")] if in_container(facts) else []),
        *_steps(facts),
        certain=waits,
        cuda_error=NOT_READY if waits else None,
        fabric_manager=service or "?",
        driver=known(facts.driver.version) or "?",
        nvswitch=facts.driver.nvswitch,
    )


def _steps(facts: Facts) -> list[Fix]:
    """Installed unless known to be; the package of the driver's own branch."""
    driver = parse(known(facts.driver.version) or "")
    branch = str(driver[0]) if driver else "<branch>"
    apt = f"sudo apt-get install nvidia-fabricmanager-{branch}"
    dnf = "sudo dnf install nvidia-fabric-manager"
    names = ("red hat", "rocky", "alma", "centos", "fedora", "oracle")
    install = by_distribution(facts, tuple((name, dnf) for name in names), apt)
    steps = [] if known(facts.driver.fabric_manager) == "inactive" else [Fix(text="same-version"), Fix(command=install)]
    return [*steps, Fix(command=START), Fix(text="state"), Fix(command="nvidia-smi -q | grep -A 3 Fabric")]


RULE = Rule(
    code="DR212",
    name="fabric-manager",
    layer=Layer.DRIVER,
    check=check,
    explains=("uvm-not-loaded", "suspend-resume", "driver-not-answering", "cuda-start-failed"),
)
