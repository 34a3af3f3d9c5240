"""Facts of this machine in one record."""

from __future__ import annotations

from flatout.machine import host, nvml
from flatout.machine.machine_facts import Interpreter, Machine


def machine(python: Interpreter) -> Machine:
    """The short form, for results: quick, and without asking torch."""
    driver = nvml.driver()
    return Machine(
        system=host.system(),
        processor=host.processor(),
        memory=host.memory(),
        python=python,
        driver=driver.version,
        cuda=driver.cuda,
        gpus=driver.gpus,
    )
