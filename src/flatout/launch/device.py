"""Chooses the device of a run before CUDA starts, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from flatout.base.records import Missing, Struct, field
from flatout.machine.choose import Choice, choose
from flatout.machine.machine_facts import Driver


class Device(Struct, kw_only=True):
    """What the script trains on as far as can be told before it starts."""

    name: str  # the card, or "" for the CPU
    backend: str  # cuda, rocm, xpu, mps, cpu
    reason: str  # `choice.<reason>` in the catalogue
    params: dict[str, str | int | float] = field(default_factory=dict)
    exports: dict[str, str] = field(default_factory=dict)  # what was added to the environment


def decide(driver: Driver, environ: Mapping[str, str], asked: str | None) -> Device:
    """With `--gpu-id` the script sees that card alone. Without, its environment stays as it is: it may want several."""
    gpus = [] if isinstance(driver.gpus, Missing) else driver.gpus
    choice = choose(gpus, environment=environ, asked=asked)
    return Device(
        name=choice.name,
        backend=choice.backend,
        reason=choice.reason,
        params=choice.params,
        exports=_exports(choice) if asked is not None else {},
    )


def _exports(choice: Choice) -> dict[str, str]:
    if choice.backend == "cpu" and choice.reason == "cpu-asked":
        return {"CUDA_VISIBLE_DEVICES": ""}  # what `--gpu-id cpu` asks for: no card at all
    return choice.exports
