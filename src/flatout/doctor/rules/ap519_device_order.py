"""AP519 device-order: cards that differ are numbered by speed, while nvidia-smi numbers them by slot. A note."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import gpus
from flatout.doctor.remedy import set_variable
from flatout.machine.machine_facts import Facts


def check(facts: Facts) -> Finding | None:
    environment = facts.application.environment
    names = {gpu.name for gpu in gpus(facts) if gpu.vendor == "nvidia"}
    value = environment.get("CUDA_VISIBLE_DEVICES", "").strip()
    if len(names) < 2 or not value[:1].isdigit() or environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return None
    return RULE.found(
        Fix(text="order"),
        set_variable(facts, "CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        severity=Severity.NOTE,
        setting=f"CUDA_VISIBLE_DEVICES={value}",
        cards=sorted(names),
    )


RULE = Rule(code="AP519", name="device-order", layer=Layer.APPLICATION, check=check)
