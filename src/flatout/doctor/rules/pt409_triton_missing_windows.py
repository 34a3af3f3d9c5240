"""PT409 triton-missing-windows: torch.compile has no Triton, which torch's wheels for Windows do not bring."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.doctor import queries
from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.remedy import pip, reinstall_torch
from flatout.machine import compatibility
from flatout.machine.machine_facts import Facts
from flatout.machine.versions import parse


def check(facts: Facts) -> Finding | None:
    said = queries.symptom(facts, "triton-missing")
    name = queries.known(facts.system.name)
    absent = isinstance(facts.torch.triton, Missing) and facts.torch.triton.reason == "not-installed"
    if name not in (None, "Windows") or not (said or (absent and name == "Windows" and facts.torch.available is True)):
        return None
    return RULE.found(
        *_fix(facts),
        severity=Severity.FAULT if said else Severity.NOTE,  # who does not compile does not miss it
        certain=name == "Windows",
        torch=facts.torch.version,
        gpu=queries.any_nvidia_gpu(facts),
        python=facts.python.path,
        symptom=said.code if said else None,
    )


def _fix(facts: Facts) -> list[Fix]:
    version = queries.known(facts.torch.version)
    line = compatibility.triton_windows_of(version) if version else None
    if version and line is None and parse(version) < (2, 6):  # the oldest torch with a line of its own
        return [Fix(text="torch-first"), *reinstall_torch(facts), pip(facts, "install -U triton-windows"), Fix(text="without")]
    what = "triton-windows"
    if line:
        major, minor_number = parse(line)
        what = f'"triton-windows<{major}.{minor_number + 1}"'
    return [pip(facts, f"install -U {what}"), Fix(text="without"), Fix(text="wsl")]


RULE = Rule(
    code="PT409",
    name="triton-missing-windows",
    layer=Layer.PYTORCH,
    check=check,
)
