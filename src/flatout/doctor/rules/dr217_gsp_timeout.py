"""DR217 gsp-timeout: the processor on the card that runs the driver's firmware stopped answering."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import cuda_works, gpus, known, linux_host, xids
from flatout.doctor.remedy import install_driver, restart
from flatout.machine.machine_facts import Facts

# GSP RPC timeout and GSP error.
GSP_XIDS = frozenset({119, 120})

WITHOUT_GSP = "echo 'options nvidia NVreg_EnableGpuFirmware=0' | sudo tee /etc/modprobe.d/nvidia-gsp.conf"


def check(facts: Facts) -> Finding | None:
    numbers = sorted(xids(facts) & GSP_XIDS)
    if not numbers:
        return None
    without = [Fix(text="without-gsp"), Fix(command=WITHOUT_GSP)] if linux_host(facts) else []
    return RULE.found(
        restart(facts),
        *install_driver(facts),
        *without,
        Fix(text="hardware"),
        severity=Severity.NOTE if cuda_works(facts) else Severity.FAULT,  # a line of the log that a restart has cured
        gpu=gpus(facts)[0].name if gpus(facts) else "GPU",
        xids=numbers,
        driver=known(facts.driver.version),
    )


RULE = Rule(
    code="DR217",
    name="gsp-timeout",
    layer=Layer.DRIVER,
    check=check,
    explains=("driver-not-answering", "uvm-not-loaded", "suspend-resume", "smi-unusable", "cuda-start-failed"),
)
