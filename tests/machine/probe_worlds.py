"""Machines made of folders and recorded outputs, for the probes' tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from flatout.machine.probe_host import Output, World

NOT_THERE = Output(code=None, stderr="No such file or directory")
H200 = "0000:00:06.0"
VERSION_580 = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder@)\n"
    "GCC version:  gcc version 15.3.0 (GCC)\n"
)


def world(
    root: Path,
    commands: Mapping[str, Output | str] | None = None,
    environ: Mapping[str, str] | None = None,
    platform: str = "Linux",
) -> World:
    """`commands` by how their command line begins; the longest fitting one answers, and all others do not exist."""

    def run(command: Sequence[str], limit_s: float) -> Output:
        line = " ".join(command)
        known = sorted((name for name in commands or {} if line.startswith(name)), key=len)
        if not known:
            return NOT_THERE
        answer = (commands or {})[known[-1]]
        return Output(code=0, stdout=answer) if isinstance(answer, str) else answer

    return World(root=root, run=run, environ=dict(environ or {}), platform=platform)


def write(root: Path, path: str, content: str | bytes = "") -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)


def pci_device(root: Path, address: str, numbers: str, kind: str, driver: str | None = None, **more: str) -> None:
    """`numbers` as vendor:device, `kind` the class; `more` are further files of the device's folder."""
    vendor, device = numbers.split(":")
    folder = f"/sys/bus/pci/devices/{address}"
    for name, text in {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": f"0x{kind}", **more}.items():
        write(root, f"{folder}/{name}", text + "\n")
    if driver:
        (root / folder.lstrip("/") / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")


def h200_vm(root: Path) -> None:
    """What a virtual machine with one H200 shows of itself; healthy."""
    pci_device(root, "0000:00:00.0", "8086:0d57", "060000")
    pci_device(root, "0000:00:03.0", "1af4:1041", "020000", "virtio-pci")
    link = {"current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16"}
    link |= {"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16", "power_state": "D0"}
    pci_device(root, H200, "10de:2335", "030200", "nvidia", **link)
    write(root, "/proc/driver/nvidia/version", VERSION_580)
    write(root, f"/proc/driver/nvidia/gpus/{H200}/information", "Model: \t\t NVIDIA H200\nIRQ:   \t\t 41\n")
    write(root, "/proc/modules", "nvidia_uvm 1 0 - Live 0x0\nnvidia 2 1 nvidia_uvm, Live 0x0\nvirtio_net 3 0 - Live 0x0\n")
    write(root, "/proc/sys/kernel/osrelease", "6.18.44\n")
    write(root, "/etc/os-release", 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n')
    for node in ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "null"):
        write(root, f"/dev/{node}")
    write(root, "/dev/shm/.keep")
