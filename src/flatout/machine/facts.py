"""All facts of this machine in one record."""

from __future__ import annotations

from flatout.machine import host, nvml
from flatout.machine.model import Interpreter, Machine


def gather(python: Interpreter) -> Machine:
    return Machine(
        system=host.system(), processor=host.processor(), memory=host.memory(), python=python, graphics=nvml.graphics()
    )
