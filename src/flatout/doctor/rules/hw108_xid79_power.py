"""HW108 xid79-power: the card drops off the bus, or takes the whole machine down, when it needs the most power."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import FALLEN_OFF, gpus, known, lost, on_bus, symptom, xids
from flatout.doctor.remedy import privileged, restart
from flatout.machine.machine_facts import Facts

# Lower peaks for the test, not for good: about what removes the power spikes that trip a supply.
TEST_LIMIT = 0.7


def check(facts: Facts) -> Finding | None:
    reported = symptom(facts, "gpu-lost", "machine-powers-off")
    gone = lost(facts)
    if not gone and reported is None:
        return None
    # After sleep it is more often the driver's state than the power supply.
    slept = symptom(facts, "after-suspend") is not None
    off = reported is not None and reported.code == "machine-powers-off"
    return RULE.found(
        *([] if off else [restart(facts)]),
        Fix(text="cables"),
        Fix(text="supply"),
        *_test(facts),
        Fix(text="laptop" if facts.hardware.laptop is True else "seat"),
        certain=not slept and (gone or off),
        gpu=_name(facts),
        xids=[FALLEN_OFF] if FALLEN_OFF in xids(facts) else None,
        symptom=reported.code if reported else None,
        nvml_error=known(facts.driver.nvml_error) if gone else None,
    )


def _name(facts: Facts) -> str:
    device = on_bus(facts)
    return gpus(facts)[0].name if gpus(facts) else (known(device.name) if device else None) or "GPU"


def _test(facts: Facts) -> list[Fix]:
    """Run once with lower peaks: if it then survives, power was the cause."""
    watts = known(gpus(facts)[0].power_limit_default_w) if gpus(facts) else None
    command = f"nvidia-smi -pl {TEST_LIMIT * watts:.0f}" if watts else "nvidia-smi -lgc 300,1500"
    return [Fix(text="test"), privileged(facts, command)]


RULE = Rule(
    code="HW108",
    name="xid79-power",
    layer=Layer.HARDWARE,
    check=check,
    explains=("driver-not-answering", "kernel-module-missing", "no-driver", "smi-unusable", "no-gpu", "cuda-start-failed"),
)
