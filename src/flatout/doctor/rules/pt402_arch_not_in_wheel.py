"""PT402 arch-not-in-wheel: the card is newer than anything that this torch was compiled for."""

from __future__ import annotations

from flatout.doctor import queries
from flatout.doctor.architecture import misfit
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.remedy import reinstall_torch
from flatout.machine.machine_facts import Facts


def check(facts: Facts) -> Finding | None:
    fit = misfit(facts)
    if fit is None or fit.card_is_older:
        return None
    return RULE.found(
        *reinstall_torch(facts),
        Fix(text="check"),
        severity=fit.severity,
        certain=fit.certain,
        gpu=fit.card,
        capability=fit.capability,
        torch=facts.torch.version,
        has=fit.codes or None,
        driver=facts.driver.version,
        python=queries.known(facts.python.path),
    )


RULE = Rule(
    code="PT402",
    name="arch-not-in-wheel",
    layer=Layer.PYTORCH,
    check=check,
    explains=("cuda-start-failed", "arch-not-in-extension", "triton-unsupported-card"),
)
