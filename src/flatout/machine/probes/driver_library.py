"""The NVIDIA driver through its library; where that fails, through `nvidia-smi` and the files on disk."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.machine import nvml
from flatout.machine.machine_facts import Driver
from flatout.machine.probe_host import World
from flatout.machine.probes import kernel, nvidia_smi
from flatout.machine.timed import Question

NVML_LIMIT_S = 8.0  # a card without persistence mode is first woken up: some seconds each
# Where the library is there but the driver does not answer it, its version is still on its file.
LIBRARY_IS_THERE = ("nvml-version-mismatch", "nvml-driver-not-loaded")


def driver(world: World) -> Driver:
    told = Question("nvml", NVML_LIMIT_S, nvml.driver).answer()
    if isinstance(told, Missing):
        told = Driver(version=told, cuda=told, gpus=told, nvml_error=told.reason)
    if told.nvml_error == "none":
        told.smi, told.smi_message = Missing("not-asked"), Missing("not-asked")
        return told
    if world.platform == "Darwin":
        return told
    second = nvidia_smi.driver(world)
    told.smi, told.smi_message = second.smi, second.smi_message
    for name in ("version", "cuda", "gpus"):
        # NVML's own reason says more than the absence of a second answer.
        if not isinstance(getattr(second, name), Missing):
            setattr(told, name, getattr(second, name))
    on_disk = kernel.library_version(world) if told.nvml_error in LIBRARY_IS_THERE else None
    if on_disk and (isinstance(told.version, Missing) or on_disk.startswith(told.version)):
        told.version = on_disk
    return told
