"""CU301 driver-too-old: the NVIDIA driver is older than the CUDA that torch was built with, or than the card, needs."""

from __future__ import annotations

from flatout.doctor import queries
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.remedy import install_wheel, update_driver
from flatout.machine import compatibility
from flatout.machine.machine_facts import Facts
from flatout.machine.versions import at_least, minor, parse

INSUFFICIENT = 35  # the runtime asks for more than the driver has; also what a missing driver used to give
NEWER_PTX = 222  # the driver cannot compile what a newer toolkit made
FAMILIES_FROM = 11  # since CUDA 11 any driver of a family runs all its releases; before, each wanted its own


def check(facts: Facts) -> Finding | None:
    said, code = queries.symptom(facts, "driver-too-old"), queries.cuda_error(facts)
    if queries.works(facts) or (facts.torch.available is True and not said and code != NEWER_PTX):
        return None  # forward compatibility, on data-centre cards, makes an old driver do
    built = queries.build_cuda(facts)
    if built and not built[1] and facts.source == "probed" and not queries.complains(facts):
        built = None  # nobody misses anything: then what this release usually comes with is no reason to speak
    cuda = built[0] if built else None
    for_wheel, for_card = _too_old(facts, cuda), _older_than_card(facts)
    if not said and not for_wheel and not for_card and not (code in (INSUFFICIENT, NEWER_PTX) and for_wheel is None):
        return None
    found = str(said.params["found"]) if said and "found" in said.params else None
    return RULE.found(
        *_fix(facts, cuda, found),
        certain=bool(said) or bool(for_wheel and built and built[1]),
        have=queries.known(facts.driver.version) or (f"CUDA {found}" if found else None),
        driver=facts.driver.version,
        supports=found or facts.driver.cuda,
        torch=facts.torch.version,
        cuda=cuda,
        minimum=_minimum(facts, cuda),
        error_code=code,
    )


def _too_old(facts: Facts, cuda: str | None) -> bool | None:
    """Older than the wheel's CUDA needs; None where the facts do not say."""
    driver, supports = queries.known(facts.driver.version), queries.known(facts.driver.cuda)
    if cuda is None or (driver is None and supports is None):
        return None
    if driver is not None:
        return not at_least(driver, _wheel_minimum(facts, cuda))
    if parse(cuda)[0] >= FAMILIES_FROM:
        return parse(supports or "")[0] < parse(cuda)[0]
    return not at_least(supports or "", minor(cuda))


def _older_than_card(facts: Facts) -> bool:
    """Only where the wheel itself fits the card: else the wheel is the cause, and its repair begins with the driver."""
    card, codes, driver = queries.capability(facts), queries.arch_list(facts), queries.known(facts.driver.version)
    least = compatibility.minimum_driver_of_card(card) if card else None
    if not card or not codes or not driver or not least or at_least(driver, least):
        return False
    return compatibility.serves(codes[0], card)


def _wheel_minimum(facts: Facts, cuda: str) -> str:
    """Of the CUDA family; where PTX has to be compiled, the driver that came with that very release."""
    own = compatibility.driver_of_cuda(cuda, queries.system(facts)) if queries.cuda_error(facts) == NEWER_PTX else None
    return own or compatibility.minimum_driver(cuda, queries.system(facts))


def _minimum(facts: Facts, cuda: str | None) -> str:
    card, minimum = queries.capability(facts), _wheel_minimum(facts, cuda or compatibility.newest_family())
    for_card = compatibility.minimum_driver_of_card(card) if card else None
    return for_card if for_card and at_least(for_card, minimum) else minimum


def _fix(facts: Facts, cuda: str | None, found: str | None) -> list[Fix]:
    card, system, python = queries.capability(facts), queries.system(facts), queries.known(facts.python.version)
    minimum, codes = _minimum(facts, cuda), queries.arch_list(facts)
    last = compatibility.last_driver_of_card(card) if card else None
    updatable = last is None or parse(last)[0] >= parse(minimum)[0]
    steps = update_driver(facts, minimum) if updatable else [Fix(text="card-ends", params={"last": last or "?"})]
    if updatable and card and codes and not compatibility.serves(codes[0], card):
        wheel = compatibility.best_wheel(card, None, system, python)
        return [*steps, Fix(text="and-wheel"), *install_wheel(facts, wheel)] if wheel else steps
    driver = queries.known(facts.driver.version) or (compatibility.driver_of_cuda(found, system) if found else None)
    wheel = compatibility.best_wheel(card, driver, system, python) if driver else None
    if wheel is not None:
        steps += [Fix(text="older-wheel"), *install_wheel(facts, wheel)]
    return steps


RULE = Rule(
    code="CU301",
    name="driver-too-old",
    layer=Layer.CUDA,
    check=check,
    explains=("cuda-start-failed",),
)
