"""PT403 arch-dropped: the card is older than anything that this torch was compiled for."""

from __future__ import annotations

from flatout.doctor import queries
from flatout.doctor.architecture import misfit
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.remedy import reinstall_torch
from flatout.machine import compatibility
from flatout.machine.machine_facts import Facts


def check(facts: Facts) -> Finding | None:
    fit = misfit(facts)
    if fit is None or not fit.card_is_older:
        return None
    if fit.capability and not compatibility.served_at_all(fit.capability, queries.system(facts)):
        repair = [Fix(text="no-wheel-at-all", params={"capability": fit.capability})]
    elif fit.capability:
        repair = reinstall_torch(facts)
    else:
        repair = [Fix(text="older-cards", params={"url": compatibility.index_url("cu126")})]
    return RULE.found(
        *repair,
        severity=fit.severity,
        certain=fit.certain,
        gpu=fit.card,
        capability=fit.capability,
        torch=facts.torch.version,
        has=fit.codes or None,
        python=queries.known(facts.python.path),
    )


RULE = Rule(
    code="PT403",
    name="arch-dropped",
    layer=Layer.PYTORCH,
    check=check,
    explains=("cuda-start-failed", "arch-not-in-extension", "triton-unsupported-card"),
)
