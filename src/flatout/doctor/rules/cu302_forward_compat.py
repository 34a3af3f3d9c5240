"""CU302 forward-compat: a compatibility library of CUDA stands before the driver's own, and the card or driver refuses it."""

from __future__ import annotations

from flatout.doctor import queries
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.remedy import install_wheel, update_driver
from flatout.machine import compatibility
from flatout.machine.machine_facts import Facts

NOT_ON_THIS_CARD = 804  # forward compatibility is for data-centre cards
MISMATCH = 803  # library and kernel module of different releases: on a plain machine a matter of the driver itself


def check(facts: Facts) -> Finding | None:
    code, library = queries.cuda_error(facts), _compat_library(facts)
    if code == MISMATCH:
        if library is None and not queries.in_container(facts):
            return None
        if queries.symptom(facts, "nvml-version-mismatch") or facts.driver.nvml_error == "nvml-version-mismatch":
            return None  # the host's own driver is half updated
    elif code != NOT_ON_THIS_CARD:
        return None
    built = queries.build_cuda(facts)
    cuda = built[0] if built else compatibility.newest_family()
    return RULE.found(
        *_fix(facts, cuda),
        certain=code == NOT_ON_THIS_CARD or library is not None,
        error_code=code,
        library=library,
        driver=facts.driver.version,
        supports=facts.driver.cuda,
        cuda=built[0] if built else None,
        gpu=queries.any_nvidia_gpu(facts),
    )


def _compat_library(facts: Facts) -> str | None:
    """A libcuda from a `compat` folder: loaded, or first in the search path."""
    found = [*(queries.known(facts.cuda.loaded) or []), *(queries.known(facts.cuda.shadowing) or [])]
    paths = [queries.known(library.path) or "" for library in found if library.name == "cuda"]
    paths += facts.application.environment.get("LD_LIBRARY_PATH", "").split(":")
    return next((path for path in paths if "/compat" in path), None)


def _fix(facts: Facts, cuda: str) -> list[Fix]:
    system, driver = queries.system(facts), queries.known(facts.driver.version)
    steps = [*update_driver(facts, compatibility.driver_of_cuda(cuda, system) or compatibility.minimum_driver(cuda, system))]
    steps.append(Fix(text="older-image"))
    wheel = (
        compatibility.best_wheel(queries.capability(facts), driver, system, queries.known(facts.python.version))
        if driver
        else None
    )
    if wheel is not None:
        steps += [Fix(text="older-wheel"), *install_wheel(facts, wheel)]
    return [*steps, Fix(text="without-compat")]


RULE = Rule(
    code="CU302",
    name="forward-compat",
    layer=Layer.CUDA,
    check=check,
    explains=("driver-too-old", "cuda-start-failed", "driver-library-mismatch", "library-shadowing"),
)
