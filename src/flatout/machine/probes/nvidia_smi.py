"""`nvidia-smi` as the second witness, asked only where NVML failed: what it says for itself, and its table of cards."""

from __future__ import annotations

import re
from typing import Any

from flatout.base.records import Missing
from flatout.machine.machine_facts import Driver, Gpu
from flatout.machine.probe_host import Output, World

LIMIT_S = 5.0
PLACES = ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi")
FIELDS = ("index", "name", "uuid", "pci.bus_id", "memory.total", "memory.free", "driver_version")
NEWER_FIELDS = ("compute_cap",)  # a driver before 510 refuses the whole question because of one it does not know
LONGEST_MESSAGE = 300
MIB = 1 << 20


def driver(world: World) -> Driver:
    """`smi` and `smi_message` always; versions and cards where it works."""
    command, output = _start(world)
    if output.code is None:
        why = Missing("not-found", "nvidia-smi")
        return Driver(smi="not-found", smi_message=why)
    if output.timed_out:
        return Driver(smi="timeout", smi_message=Missing("probe-timeout", f"{LIMIT_S:g} s"))
    said = (output.stdout + "\n" + output.stderr).strip()
    if output.code != 0:
        return Driver(smi="failed", smi_message=_message(said), version=_library(said))
    header = re.search(r"NVIDIA-SMI\s+\S+", output.stdout)
    if not header:
        return Driver(smi="garbled", smi_message=_message(said))
    return Driver(
        smi="ok",
        smi_message=Missing("not-applicable"),
        # Drivers from 610 on write "KMD Version" and "CUDA UMD Version".
        version=_after("(?:Driver|KMD) Version:", output.stdout),
        cuda=_after("CUDA (?:UMD )?Version:", output.stdout),
        gpus=gpus(world, command),
    )


def _start(world: World) -> tuple[str, Output]:
    output = Output(code=None)
    for place in PLACES:
        if "/" in place and not world.path(place).exists():
            continue
        output = world.run([place], LIMIT_S)
        if output.code is not None or output.timed_out:
            return place, output
    return PLACES[0], output


def _message(text: str) -> str | Missing:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    plain = "".join(char for char in lines[0] if char.isprintable()) if lines else ""
    return plain[:LONGEST_MESSAGE] or Missing("not-reported")


def _library(text: str) -> str | Missing:
    """On a mismatch it adds the version of the library: "NVML library version: 560.35"."""
    match = re.search(r"NVML library version: ([\d.]+)", text)
    return match[1] if match else Missing("not-reported")


def _after(label: str, text: str) -> str | Missing:
    match = re.search(rf"{label}\s*(\d[\d.]*)", text)
    return match[1] if match else Missing("not-reported")


def gpus(world: World, command: str) -> list[Gpu] | Missing:
    for fields in (FIELDS + NEWER_FIELDS, FIELDS):
        output = world.run([command, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"], LIMIT_S)
        if output.timed_out:
            return Missing("probe-timeout", "nvidia-smi --query-gpu")
        if output.code == 0:
            return parse(output.stdout, fields)
    return Missing("unreadable", "nvidia-smi --query-gpu")


def parse(text: str, fields: tuple[str, ...]) -> list[Gpu] | Missing:
    cards: list[Gpu] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(fields) and cells[0].isdigit():
            cards.append(_gpu(dict(zip(fields, cells, strict=True))))
        elif line.strip():
            return Missing("unreadable", "nvidia-smi --query-gpu")
    return cards


def _gpu(row: dict[str, str]) -> Gpu:
    def cell(name: str) -> Any:
        value = row.get(name, "")
        return Missing("not-reported") if not value or value.startswith(("[", "N/A")) else value

    def memory(name: str) -> int | Missing:
        value = cell(name)
        return int(value) * MIB if isinstance(value, str) and value.isdigit() else Missing("not-reported")

    return Gpu(
        index=int(row["index"]),
        name=row["name"],
        uuid=cell("uuid"),
        pci_bus_id=cell("pci.bus_id"),
        memory_total_bytes=memory("memory.total"),
        memory_free_bytes=memory("memory.free"),
        capability=cell("compute_cap"),
    )
