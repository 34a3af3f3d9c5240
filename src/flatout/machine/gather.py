"""All facts of this machine: independent questions side by side, each with its own time limit.

The whole takes as long as its slowest part. A part that hangs or fails leaves a `Missing` with the reason in the
fields that it would have filled, and stops nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from flatout.base.records import Missing, Struct
from flatout.machine import host, torch_child
from flatout.machine import probe_host as worlds
from flatout.machine.machine_facts import (
    UNKNOWN,
    Application,
    Cuda,
    Driver,
    Facts,
    Hardware,
    HostMemory,
    Interpreter,
    Processor,
    System,
    Torch,
)
from flatout.machine.probe_host import World
from flatout.machine.probes import (
    containers,
    cuda_side,
    driver_library,
    environment,
    kernel,
    pci,
    pci_macos,
    pci_windows,
    python_side,
    secure_boot,
    xid,
)
from flatout.machine.timed import Question

QUICK_S = 5.0
COMMAND_S = 10.0
DRIVER_S = 30.0  # NVML's limit and those of three calls of nvidia-smi
HEAD_START_S = 0.5
AFTER_CHILD_S = 5.0  # beyond the child's own limit, to end it

HARDWARE = {"Linux": pci.hardware, "Windows": pci_windows.hardware, "Darwin": pci_macos.hardware}
KERNEL_FIELDS = ("kernel_version", "modules", "module_installed", "device_nodes", "nvswitch", "fabric_manager")


class Probe(Struct, frozen=True):
    """One question: the part of a layer that it fills, its time, and how it is asked."""

    name: str
    layer: type[Struct]
    fills: tuple[str, ...]
    limit_s: float
    ask: Callable[[], Any]  # gives a `layer` with these fields filled


def gather(python: str, world: World | None = None, ask_torch: bool = True) -> Facts:
    """`python` is the interpreter whose torch is meant. Never raises for what it finds, and never waits for long."""
    here = world or worlds.live()
    questions = [(probe, Question(probe.name, probe.limit_s, probe.ask)) for probe in _probes(here)]
    if ask_torch:
        # First look at the card as it is: the child will wake it, hold memory on it and be a process on it.
        next(question for _, question in questions if question.name == "driver").wait(HEAD_START_S)
    limit_s = torch_child.LIMIT_S + AFTER_CHILD_S
    child = Question("torch", limit_s, partial(torch_child.ask, here, python)) if ask_torch else None
    alone = None if ask_torch else Question("interpreter", COMMAND_S, partial(python_side.interpreter, here, python))
    elsewhere = Question("environments", QUICK_S, partial(python_side.other_torches, here, python))
    parts = [(probe, question.answer()) for probe, question in questions]
    facts = Facts(
        system=_merged(System, parts),
        processor=_merged(Processor, parts),
        memory=_merged(HostMemory, parts),
        hardware=_merged(Hardware, parts),
        driver=_merged(Driver, parts),
        cuda=_merged(Cuda, parts),
        application=_merged(Application, parts),
    )
    if child:
        _add_torch(facts, child.answer(), python)
    if alone:
        _leave_torch(facts, alone.answer(), python)
    others = elsewhere.answer()
    if isinstance(others, list) and others:
        facts.torch.others = (facts.torch.others if isinstance(facts.torch.others, list) else []) + others
    return facts


def _probes(world: World) -> list[Probe]:
    every = [
        Probe("system", System, ("distribution", "wsl", "container"), QUICK_S, partial(containers.system, world)),
        Probe("processor", Processor, ("cores", "usable", "model"), QUICK_S, host.processor),
        Probe("memory", HostMemory, ("total_bytes", "available_bytes", "limit_bytes"), QUICK_S, host.memory),
        Probe("driver", Driver, _DRIVER_FIELDS, DRIVER_S, partial(driver_library.driver, world)),
        Probe("cuda", Cuda, ("toolkits", "nvcc", "shadowing"), COMMAND_S, partial(cuda_side.cuda, world)),
        Probe("application", Application, _ROOM_FIELDS, QUICK_S, partial(environment.application, world)),
    ]
    look = HARDWARE.get(world.platform)
    if look:
        every.append(
            Probe("hardware", Hardware, ("pci", "laptop", "on_battery", "gpu_switch"), COMMAND_S, partial(look, world))
        )
    if world.platform == "Linux":
        every += [
            Probe("kernel", Driver, KERNEL_FIELDS, QUICK_S, partial(kernel.driver, world)),
            Probe("xid", Driver, ("xids",), COMMAND_S, partial(xid.driver, world)),
            Probe("secure-boot", Driver, ("secure_boot",), QUICK_S, partial(secure_boot.driver, world)),
        ]
    return every


_DRIVER_FIELDS = ("version", "cuda", "nvml_error", "smi", "smi_message", "gpus")
_ROOM_FIELDS = ("shm_bytes", "shm_free_bytes", "disk_free_bytes", "open_files_limit")


def _merged(layer: type[Any], parts: list[tuple[Probe, Any]]) -> Any:
    whole = layer()
    for probe, part in parts:
        if probe.layer is not layer:
            continue
        if isinstance(part, Missing):
            for name in probe.fills:
                setattr(whole, name, part)
            continue
        for name in part.__struct_fields__:
            value = getattr(part, name)
            if value != UNKNOWN:
                setattr(whole, name, value)
    return whole


def _add_torch(facts: Facts, asked: torch_child.Asked | Missing, python: str) -> None:
    if isinstance(asked, Missing):
        facts.torch = Torch(status=asked, version=asked)
        facts.python = Interpreter(path=python, version=asked)
        facts.cuda.init_code = asked
        return
    facts.torch, facts.python = asked.torch, asked.python
    facts.cuda.init_code = asked.cuda.init_code
    facts.cuda.device_count = asked.cuda.device_count
    facts.cuda.loaded = asked.cuda.loaded
    facts.cuda.missing_libraries = asked.cuda.missing_libraries
    if isinstance(facts.driver.cuda, Missing) and isinstance(asked.driver_cuda, str):
        # libcuda answers where NVML does not: in some containers, and on Jetson.
        facts.driver.cuda = asked.driver_cuda


def _leave_torch(facts: Facts, python: Interpreter | Missing, path: str) -> None:
    facts.python = Interpreter(path=path, version=python) if isinstance(python, Missing) else python
    why = Missing("not-asked")
    facts.torch = Torch(status=why, version=why)
    facts.cuda.init_code = why
