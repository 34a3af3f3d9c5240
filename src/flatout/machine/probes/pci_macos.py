"""Graphics devices and power on macOS."""

from __future__ import annotations

import json
import re
from typing import Any

from flatout.base.records import Missing
from flatout.machine.machine_facts import Hardware, PciDevice
from flatout.machine.probe_host import World
from flatout.machine.probes.pci_names import kind_of, vendor_of

PROFILER_LIMIT_S = 8.0
POWER_LIMIT_S = 3.0
BUILTIN = "spdisplays_builtin"


def hardware(world: World) -> Hardware:
    power = world.run(["pmset", "-g", "batt"], POWER_LIMIT_S)
    known = power.code == 0 and not power.timed_out
    return Hardware(
        pci=devices(world),
        laptop="InternalBattery" in power.stdout if known else Missing("not-found", "pmset"),
        on_battery="'Battery Power'" in power.stdout if known else Missing("not-found", "pmset"),
    )


def devices(world: World) -> list[PciDevice] | Missing:
    output = world.run(["system_profiler", "-json", "SPDisplaysDataType"], PROFILER_LIMIT_S)
    if output.code is None:
        return Missing("not-found", "system_profiler")
    if output.timed_out:
        return Missing("probe-timeout", "system_profiler")
    try:
        rows = json.loads(output.stdout)["SPDisplaysDataType"]
        return [_device(row) for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError):
        return Missing("unreadable", "system_profiler")


def _device(row: dict[str, Any]) -> PciDevice:
    name = str(row.get("sppci_model") or row.get("_name") or "")
    maker = str(row.get("spdisplays_vendor", ""))
    # "sppci_vendor_Apple", "NVIDIA (0x10de)", "sppci_vendor_amd"
    numbers = re.search(r"0x([0-9a-f]{4})", maker)
    words = maker.lower()
    named = next((vendor for vendor in ("apple", "nvidia", "amd", "intel") if vendor in words), "other")
    vendor = vendor_of(numbers[1]) if numbers else named
    builtin = row.get("sppci_bus") == BUILTIN or vendor == "apple"
    return PciDevice(
        vendor=vendor,
        vendor_id=numbers[1] if numbers else Missing("not-reported"),
        device_id=str(row.get("spdisplays_device-id", "")).removeprefix("0x") or Missing("not-reported"),
        name=name or Missing("not-reported"),
        kind="integrated" if builtin else kind_of(vendor, name, ""),
        address=Missing("not-reported"),
    )
