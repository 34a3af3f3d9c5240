"""DR215 smi-unusable: the tool nvidia-smi hangs or prints nonsense, while the driver itself answers."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import known, system
from flatout.doctor.remedy import privileged
from flatout.machine.machine_facts import Facts

# Not "not-found": containers that ask for compute only are given no nvidia-smi, and need none.
UNUSABLE = ("timeout", "garbled", "failed")


def check(facts: Facts) -> Finding | None:
    if facts.driver.nvml_error != "none" or known(facts.driver.smi) not in UNUSABLE:
        return None
    persistence = [privileged(facts, "nvidia-smi -pm 1")] if system(facts) == "Linux" else []
    return RULE.found(
        Fix(text="ignore"),
        Fix(text="which"),
        Fix(command="where nvidia-smi" if system(facts) == "Windows" else "type -a nvidia-smi"),
        *persistence,
        severity=Severity.NOTE,
        smi=facts.driver.smi,
        nvml_error="none",
        message=facts.driver.smi_message,
    )


RULE = Rule(code="DR215", name="smi-unusable", layer=Layer.DRIVER, check=check)
