"""What the kernel knows of graphics drivers: modules loaded and on disk, device nodes, NVSwitch. Linux."""

from __future__ import annotations

import re

from flatout.base.records import Missing
from flatout.machine.machine_facts import Driver
from flatout.machine.probe_host import World

GPU_MODULES = re.compile(r"nvidia(_\w+)?|nouveau|nova_core|amdgpu|amdkfd|radeon|i915|xe|vfio_pci|gasket|dxgkrnl")
GPU_NODES = re.compile(r"nvidia\d+|nvidiactl|nvidia-uvm(-tools)?|nvidia-modeset|nvidia-nvswitch(ctl|\d+)|dxg|kfd")
MODULE_FOLDERS = ("/lib/modules", "/usr/lib/modules", "/run/booted-system/kernel-modules/lib/modules")
# Debian calls it nvidia-current.ko, Ubuntu nvidia.ko or nvidia-580.ko; any of them may be compressed.
MODULE_FILE = re.compile(r"(^|/)nvidia(-current|-open|-tesla[-\d]*|-legacy[-\dx]*|-\d+)?\.ko(\.\w+)?:", re.M)
LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
)
SERVICE_LIMIT_S = 3.0
FABRIC_MANAGER = "nvidia-fabricmanager"


def driver(world: World) -> Driver:
    nvswitch = has_nvswitch(world)
    return Driver(
        kernel_version=kernel_version(world),
        modules=modules(world),
        module_installed=module_installed(world),
        device_nodes=device_nodes(world),
        nvswitch=nvswitch,
        fabric_manager=fabric_manager(world) if nvswitch else Missing("not-applicable"),
    )


def kernel_version(world: World) -> str | Missing:
    """Of the loaded module: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build"."""
    text = world.text("/proc/driver/nvidia/version")
    if isinstance(text, Missing):
        return text
    match = re.search(r"Kernel Module\D.*?\s(\d{3,}\.[\d.]+)", text)
    return match[1] if match else Missing("unreadable", text.split("\n")[0])


def modules(world: World) -> list[str] | Missing:
    text = world.text("/proc/modules")
    if isinstance(text, Missing):
        return text
    names = (line.split(" ", 1)[0] for line in text.splitlines())
    return sorted(name for name in names if GPU_MODULES.fullmatch(name))


def release(world: World) -> str:
    return world.words("/proc/sys/kernel/osrelease")


def module_installed(world: World) -> bool | Missing:
    """Whether a module for the running kernel is on disk: after a kernel update it may be there for the old one only."""
    running = release(world)
    for folder in MODULE_FOLDERS:
        text = world.text(f"{folder}/{running}/modules.dep") if running else Missing("unreadable")
        if isinstance(text, str):
            return MODULE_FILE.search(text) is not None
    # Containers do not see the host's modules, and WSL has none.
    return Missing("not-visible")


def device_nodes(world: World) -> list[str]:
    return [f"/dev/{entry.name}" for entry in world.entries("/dev") if GPU_NODES.fullmatch(entry.name)]


def has_nvswitch(world: World) -> bool:
    if any("nvswitch" in node for node in device_nodes(world)):
        return True
    for entry in world.entries("/sys/bus/pci/devices"):
        where = f"/sys/bus/pci/devices/{entry.name}"
        if world.words(f"{where}/vendor") == "0x10de" and world.words(f"{where}/class").startswith("0x0680"):
            return True
    return False


def fabric_manager(world: World) -> str | Missing:
    output = world.run(["systemctl", "is-active", FABRIC_MANAGER], SERVICE_LIMIT_S)
    if output.code is None or output.timed_out:
        return Missing("probe-timeout" if output.timed_out else "not-found", "systemctl")
    state = output.stdout.strip()
    if state == "active":
        return "active"
    installed = world.path("/usr/bin/nv-fabricmanager").exists()
    if state in ("inactive", "failed", "activating", "deactivating"):
        # systemd calls a unit that it has never heard of "inactive" too.
        return "inactive" if installed or state != "inactive" else "not-installed"
    return "inactive" if installed else Missing("unreadable", state or output.stderr.strip().split("\n")[0])


def library_version(world: World) -> str | None:
    """Of the driver's library on disk, by its file name: libnvidia-ml.so.560.35.03."""
    for folder in LIBRARY_FOLDERS:
        for entry in world.entries(folder):
            match = re.fullmatch(r"lib(?:nvidia-ml|cuda)\.so\.(\d{3,}\.[\d.]+)", entry.name)
            if match:
                return match[1]
    return None
