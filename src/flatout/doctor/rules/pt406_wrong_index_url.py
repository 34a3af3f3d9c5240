"""PT406 wrong-index-url: the index that pip was sent to does not exist, or does not have that release of torch."""

from __future__ import annotations

from flatout.doctor import queries
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.remedy import install_wheel, reinstall_torch
from flatout.doctor.request import PYTORCH_INDEX, Request, index_of, listed_versions, refused
from flatout.machine import compatibility
from flatout.machine.machine_facts import Facts
from flatout.machine.versions import minor, parse


def check(facts: Facts) -> Finding | None:
    asked = refused(facts) or _configured(facts)
    if asked is None or asked.variant is None or not asked.variant.startswith("cu"):
        return None
    exists = compatibility.index_exists(asked.variant)
    offered = compatibility.variants_of(asked.version) if asked.version else []
    lacks = bool(offered) and asked.variant not in offered
    known_release = not asked.version or parse(minor(asked.version)) <= parse(compatibility.newest_torch())
    unknown = exists is None and not listed_versions(facts) and known_release
    if exists is not False and not lacks and not (unknown and queries.symptom(facts, "no-matching-distribution")):
        return None
    return RULE.found(
        *_fix(facts, asked),
        certain=exists is False or lacks,
        index=asked.index or compatibility.index_url(asked.variant),
        variant=asked.variant,
        exists=exists,
        wanted=asked.version,
        offered=offered or None,
        python=queries.known(facts.python.version),
    )


def _configured(facts: Facts) -> Request | None:
    """On a machine without torch: the index that its environment would send pip to."""
    index = index_of(facts) if facts.torch.status == "not-installed" else None
    named = PYTORCH_INDEX.search(index) if index else None
    return Request(version=None, variant=named[1], index=index) if named else None


def _fix(facts: Facts, asked: Request) -> list[Fix]:
    """The release that was asked for, from an index that has it and that card and driver can run; else the best there is."""
    card, driver = queries.capability(facts), queries.known(facts.driver.version)
    system, python = queries.system(facts), queries.known(facts.python.version)
    wheel = compatibility.best_wheel(card, driver, system, python, asked.version) if asked.version else None
    return install_wheel(facts, wheel, asked.version) if wheel else reinstall_torch(facts)


RULE = Rule(
    code="PT406",
    name="wrong-index-url",
    layer=Layer.PYTORCH,
    check=check,
    explains=("torch-not-installed",),
)
