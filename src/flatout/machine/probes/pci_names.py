"""Who made a PCI device, what it is called, and whether it is a card of its own or part of the processor."""

from __future__ import annotations

import re

from flatout.base.records import Missing
from flatout.machine.probe_host import World

VENDORS = {"10de": "nvidia", "1002": "amd", "1022": "amd", "8086": "intel", "106b": "apple"}
NAME_TABLES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids", "/usr/share/pci.ids", "/var/lib/pciutils/pci.ids")

# AMD gives processors' graphics no number range of their own; names tell them apart.
AMD_DISCRETE = re.compile(
    r"Navi|Radeon (RX|Pro|VII|R9)|Instinct|FirePro|Vega (10|20)\b|Polaris|Ellesmere|Baffin|Fiji|Aldebaran", re.I
)
AMD_INTEGRATED = re.compile(
    r"Radeon(\(TM\)| )*\s*(\d+M )?Graphics|Raphael|Phoenix|Rembrandt|Cezanne|Renoir|Lucienne|Barcelo|Picasso|Raven"
    r"|Mendocino|Strix|Hawk Point|Granite Ridge|Dragon Range|Krackan|Vega .*Mobile Series|Radeon \d{3}M\b|Radeon 80[456]0S",
    re.I,
)
INTEL_DISCRETE = re.compile(r"\bArc\b.*\b[AB]\d{3}|DG[12]\b|Battlemage|Data Center GPU|Ponte Vecchio|Iris Xe MAX", re.I)


def vendor_of(vendor_id: str) -> str:
    return VENDORS.get(vendor_id.lower(), "other")


def kind_of(vendor: str, name: str | Missing, address: str) -> str:
    known = name if isinstance(name, str) else ""
    if vendor == "nvidia":
        return "discrete"
    if vendor == "apple":
        return "integrated"
    if vendor == "intel":
        # The processor's own graphics always sits at 00:02.0; a card lies behind a bridge.
        return "integrated" if address.endswith("00:02.0") and not INTEL_DISCRETE.search(known) else "discrete"
    if vendor == "amd":
        if AMD_DISCRETE.search(known):
            return "discrete"
        return "integrated" if AMD_INTEGRATED.search(known) else "unknown"
    return "unknown"


def name_of(world: World, vendor_id: str, device_id: str, address: str) -> str | Missing:
    """As the NVIDIA driver calls it, else as the distribution's table does."""
    for line in world.words(f"/proc/driver/nvidia/gpus/{address}/information").splitlines():
        if line.startswith("Model:") and "Unknown" not in line:
            return line.split(":", 1)[1].strip()
    for table in NAME_TABLES:
        text = world.text(table)
        if isinstance(text, str):
            return look_up(text, vendor_id, device_id)
    return Missing("not-found", "pci.ids")


def look_up(table: str, vendor_id: str, device_id: str) -> str | Missing:
    """ "GA107M [GeForce RTX 3050 Mobile]" from pci.ids: a vendor's devices are the indented lines below it."""
    start = re.search(rf"^{re.escape(vendor_id)}  (.*)$", table, re.M)
    if not start:
        return Missing("not-found", f"{vendor_id}:{device_id}")
    end = re.compile(r"^[0-9a-fC]", re.M).search(table, start.end())
    device = re.compile(rf"^\t{re.escape(device_id)}  (.*)$", re.M).search(
        table, start.end(), end.start() if end else len(table)
    )
    return device[1].strip() if device else Missing("not-found", f"{vendor_id}:{device_id}")
