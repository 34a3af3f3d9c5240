"""The nouns: what is known of a machine. Bytes, counts and versions; never a sentence."""

from __future__ import annotations

from typing import ClassVar

from flatout.base.records import Missing, Record, Struct


class System(Struct, kw_only=True):
    name: str  # Linux, Windows, Darwin
    release: str
    architecture: str


class Processor(Struct, kw_only=True):
    cores: int  # logical cores of the machine
    usable: float  # what this process may use: affinity and container quota taken into account
    usable_reason: str  # "all", "affinity" or "quota"
    model: str | Missing


class HostMemory(Struct, kw_only=True):
    total_bytes: int
    available_bytes: int
    limit_bytes: int | Missing  # a container's cap


class Interpreter(Struct, kw_only=True):
    path: str
    version: str | Missing


class Gpu(Struct, kw_only=True):
    index: int
    name: str
    uuid: str
    pci_bus_id: str | Missing
    memory_total_bytes: int | Missing
    memory_free_bytes: int | Missing
    capability: str | Missing  # "8.9"


class Graphics(Struct, kw_only=True):
    """What the driver itself says."""

    driver: str | Missing
    cuda: str | Missing  # the newest CUDA this driver supports
    gpus: list[Gpu] | Missing


class Machine(Record):
    KIND: ClassVar[str] = "machine"

    system: System
    processor: Processor
    memory: HostMemory
    python: Interpreter
    graphics: Graphics
