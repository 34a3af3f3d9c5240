"""The facts under an estimate, from the driver, the table of cards and the host. Works without NVML, and says so."""

from __future__ import annotations

import difflib
import subprocess
from collections.abc import Mapping

from flatout.base.errors import UsageError
from flatout.base.records import Missing
from flatout.data import table
from flatout.machine import cards, host, nvml
from flatout.machine.choose import choose
from flatout.machine.machine_facts import Gpu
from flatout.tune.config.estimate import GIB, MachineFacts

TRITON = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('triton') else 3)"


def facts(environ: Mapping[str, str], card: str | None = None, python: str | None = None) -> MachineFacts:
    """Of this machine, or of this machine with the named card in it."""
    processor, memory, system = host.processor(), host.memory(), host.system()
    free = memory.available_bytes
    if isinstance(memory.limit_bytes, int) and isinstance(free, int):
        free = min(free, memory.limit_bytes)
    rest = {
        "cores": processor.usable if isinstance(processor.usable, float) else 1.0,
        "host_bytes": free,
        "system": system.name if isinstance(system.name, str) else "Linux",
        "triton": has_triton(python) if python else None,
    }
    return MachineFacts(**(_named(card) if card else _own(environ)), **rest)  # type: ignore[arg-type]


def _own(environ: Mapping[str, str]) -> dict[str, object]:
    driver = nvml.driver()
    if isinstance(driver.gpus, Missing):
        return {"missing": driver.gpus.reason}
    choice = choose(driver.gpus, environment=environ)
    gpu = next((gpu for gpu in driver.gpus if gpu.index == choice.index), None)
    if gpu is None:
        return {"missing": "not-visible" if driver.gpus else "no-device"}  # CUDA_VISIBLE_DEVICES may hide it
    return _of(gpu)


def _of(gpu: Gpu) -> dict[str, object]:
    known = cards.find(gpu.name)
    capability = gpu.capability if isinstance(gpu.capability, str) else cards.capability_of(gpu.name)
    return {
        "card": gpu.name,
        "source": "nvml",
        "capability": capability or Missing("unknown"),
        "memory_bytes": gpu.memory_total_bytes,
        "tensor_cores": known.tensor_cores if known else None,
    }


def _named(name: str) -> dict[str, object]:
    # "RTX 4050" is only sold in laptops, and people leave the word out.
    known = cards.find(name) or cards.find(f"{name} Laptop GPU")
    if known is None:
        names = [row["name"] for row in table("cards")["card"]]
        near = difflib.get_close_matches(name.upper(), names, n=3, cutoff=0.4)
        raise UsageError("config-error.card", name=name, near=", ".join(near) or ", ".join(names[-3:]))
    memory = int(min(known.memory_gib) * GIB) if known.memory_gib else Missing("unknown")  # of two sizes, the smaller is safe
    return {
        "card": known.name,
        "source": "table",
        "capability": known.capability or Missing("unknown"),
        "memory_bytes": memory,
        "tensor_cores": known.tensor_cores,
    }


def has_triton(python: str) -> bool | None:
    """Asked of the interpreter that will train; None where it does not answer."""
    try:
        ended = subprocess.run([python, "-c", TRITON], capture_output=True, timeout=20, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return {0: True, 3: False}.get(ended.returncode)
