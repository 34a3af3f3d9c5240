"""Graphics devices and power on Windows, by one question to CIM.

Win32_VideoController lists what Windows knows as a display adapter, also with a driver that failed to start. WMIC is
gone from new Windows; PowerShell is there on all.
"""

from __future__ import annotations

import json
import re
from typing import Any

from flatout.base.records import Missing
from flatout.machine.machine_facts import Hardware, PciDevice
from flatout.machine.probe_host import World
from flatout.machine.probes.pci_names import kind_of, vendor_of

LIMIT_S = 8.0
DISCHARGING = 1
PORTABLE = {8, 9, 10, 14, 30, 31, 32}
SCRIPT = """
$ErrorActionPreference = 'SilentlyContinue'
[Console]::OutputEncoding = [Text.Encoding]::UTF8
@{
  video = @(Get-CimInstance Win32_VideoController |
    Select-Object Name, PNPDeviceID, DriverVersion, Status, ConfigManagerErrorCode)
  battery = @(Get-CimInstance Win32_Battery | Select-Object BatteryStatus)
  chassis = @((Get-CimInstance Win32_SystemEnclosure).ChassisTypes)
} | ConvertTo-Json -Compress -Depth 4
"""


def hardware(world: World) -> Hardware:
    answer = ask(world)
    if isinstance(answer, Missing):
        return Hardware(pci=answer, laptop=answer, on_battery=answer)
    battery = _rows(answer.get("battery"))
    chassis = {int(kind) for kind in _list(answer.get("chassis")) if isinstance(kind, int | float)}
    return Hardware(
        pci=[_device(row) for row in _rows(answer.get("video"))],
        laptop=bool(battery) or bool(chassis & PORTABLE),
        on_battery=any(row.get("BatteryStatus") == DISCHARGING for row in battery) if battery else Missing("not-applicable"),
    )


def ask(world: World) -> dict[str, Any] | Missing:
    output = world.run(["powershell.exe", "-NoProfile", "-NonInteractive", "-Command", SCRIPT], LIMIT_S)
    if output.code is None:
        return Missing("not-found", "powershell.exe")
    if output.timed_out:
        return Missing("probe-timeout", "Get-CimInstance")
    start = output.stdout.find("{")
    try:
        answer = json.loads(output.stdout[start:]) if start >= 0 else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        return Missing("unreadable", (output.stderr or output.stdout).strip().split("\n")[0][:200])
    return answer


def _device(row: dict[str, Any]) -> PciDevice:
    name = str(row.get("Name") or "")
    numbers = re.search(r"VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})", str(row.get("PNPDeviceID") or ""), re.I)
    vendor_id = numbers[1].lower() if numbers else ""
    vendor = vendor_of(vendor_id) if numbers else "other"
    fault = row.get("ConfigManagerErrorCode")
    return PciDevice(
        vendor=vendor,
        vendor_id=vendor_id or Missing("not-reported"),
        device_id=numbers[2].lower() if numbers else Missing("not-reported"),
        name=name or Missing("not-reported"),
        # CIM does not give the address; Intel's own graphics is told by what it is called.
        kind=kind_of(vendor, name, "0000:00:02.0"),
        kernel_driver=_driver(vendor, name, fault),
        address=Missing("not-reported"),
    )


def _driver(vendor: str, name: str, fault: object) -> str:
    """Windows has no module names: "none" where no working driver of the maker's is bound."""
    return "none" if fault or "Basic Display" in name or vendor == "other" else vendor


def _rows(value: object) -> list[dict[str, Any]]:
    return [row for row in _list(value) if isinstance(row, dict)]


def _list(value: object) -> list[Any]:
    # ConvertTo-Json writes a list of one as the thing itself.
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
