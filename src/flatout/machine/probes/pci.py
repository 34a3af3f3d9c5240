"""Display and accelerator devices on the PCI bus, whether or not a driver knows them: Linux."""

from __future__ import annotations

import re
from pathlib import Path

from flatout.base.records import Missing
from flatout.machine.machine_facts import Hardware, PciDevice
from flatout.machine.probe_host import World
from flatout.machine.probes import laptop
from flatout.machine.probes.pci_names import kind_of, name_of, vendor_of

DEVICES = "/sys/bus/pci/devices"
WANTED_CLASSES = ("03", "12")  # display controllers, processing accelerators
LSPCI_LIMIT_S = 3.0


def hardware(world: World) -> Hardware:
    return Hardware(
        pci=devices(world),
        laptop=laptop.is_laptop(world),
        on_battery=laptop.on_battery(world),
        gpu_switch=laptop.gpu_switch(world),
    )


def devices(world: World) -> list[PciDevice] | Missing:
    entries = world.entries(DEVICES)
    if not entries:
        return _from_lspci(world)
    found = [entry for entry in entries if _file(entry, "class").removeprefix("0x")[:2] in WANTED_CLASSES]
    return [_from_sysfs(world, entry) for entry in found]


def _from_sysfs(world: World, entry: Path) -> PciDevice:
    vendor_id = _file(entry, "vendor").removeprefix("0x")
    device_id = _file(entry, "device").removeprefix("0x")
    vendor = vendor_of(vendor_id)
    name = name_of(world, vendor_id, device_id, entry.name)
    state = _file(entry, "power_state") or Missing("not-reported")
    # A sleeping card answers questions about its link with nonsense, or is woken by them: asleep is healthy.
    asleep = isinstance(state, str) and state.startswith("D3")
    return PciDevice(
        address=entry.name,
        vendor=vendor,
        vendor_id=vendor_id or Missing("unreadable"),
        device_id=device_id or Missing("unreadable"),
        name=name,
        kind=kind_of(vendor, name, entry.name),
        kernel_driver=_bound(entry),
        link_width=Missing("asleep") if asleep else _width(entry, "current_link_width"),
        link_width_max=Missing("asleep") if asleep else _width(entry, "max_link_width"),
        link_gts=Missing("asleep") if asleep else _speed(entry, "current_link_speed"),
        link_gts_max=Missing("asleep") if asleep else _speed(entry, "max_link_speed"),
        power_state=state,
    )


def _bound(entry: Path) -> str | Missing:
    try:
        return (entry / "driver").readlink().name
    except FileNotFoundError:
        return "none"
    except OSError as error:
        return Missing("unreadable", error.strerror or "")


def _width(entry: Path, name: str) -> int | Missing:
    text = _file(entry, name)
    # 0 and 255 stand for a link that does not exist: integrated cards, virtual machines.
    return int(text) if text.isdigit() and text not in ("0", "255") else Missing("not-reported")


def _speed(entry: Path, name: str) -> float | Missing:
    match = re.match(r"([\d.]+) GT/s", _file(entry, name))
    return float(match[1]) if match else Missing("not-reported")


def _file(entry: Path, name: str) -> str:
    try:
        return (entry / name).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _from_lspci(world: World) -> list[PciDevice] | Missing:
    output = world.run(["lspci", "-D", "-nn", "-k"], LSPCI_LIMIT_S)
    if output.code is None or output.timed_out:
        return Missing("probe-timeout" if output.timed_out else "not-found", "lspci")
    if output.code != 0:
        return Missing("unreadable", output.stderr.strip().split("\n")[0])
    return parse_lspci(output.stdout)


def parse_lspci(text: str) -> list[PciDevice]:
    """From `lspci -D -nn -k`, with or without the domain."""
    found: list[PciDevice] = []
    current: PciDevice | None = None
    for line in text.splitlines():
        match = re.match(r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d) .*?\[([0-9a-f]{4})\]: (.*)", line)
        if match:
            current = _lspci_device(match) if match[2][:2] in WANTED_CLASSES else None
            if current:
                found.append(current)
        elif current and (bound := re.match(r"\s+Kernel driver in use: (\S+)", line)):
            current.kernel_driver = bound[1]
    return found


def _lspci_device(match: re.Match[str]) -> PciDevice:
    address = match[1] if match[1].count(":") == 2 else f"0000:{match[1]}"
    numbers = re.search(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]", match[3])
    vendor = vendor_of(numbers[1]) if numbers else "other"
    name = match[3][: numbers.start()].strip() if numbers else match[3]
    return PciDevice(
        address=address,
        vendor=vendor,
        vendor_id=numbers[1] if numbers else Missing("not-reported"),
        device_id=numbers[2] if numbers else Missing("not-reported"),
        name=name,
        kind=kind_of(vendor, name, address),
        kernel_driver="none",
    )
