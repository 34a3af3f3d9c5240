"""Whether this is a laptop, whether it runs on battery, and how its graphics switch stands: Linux."""

from __future__ import annotations

import json

from flatout.base.records import Missing
from flatout.machine.probe_host import World

PORTABLE = {"8", "9", "10", "14", "30", "31", "32"}  # SMBIOS chassis types: portable, laptop, notebook, tablet …
ASUS = "/sys/devices/platform/asus-nb-wmi"
ASUS_ARMOURY = "/sys/class/firmware-attributes/asus-armoury/attributes"
PRIME = {"on": "discrete", "nvidia": "discrete", "off": "integrated", "intel": "integrated", "on-demand": "hybrid"}
SUPERGFX = {"integrated": "integrated", "hybrid": "hybrid", "asusmuxdgpu": "discrete", "asusegpu": "discrete"}


def is_laptop(world: World) -> bool | Missing:
    kind = world.words("/sys/class/dmi/id/chassis_type")
    if kind:
        return kind in PORTABLE
    return True if _supplies(world, "Battery") else Missing("not-reported")


def on_battery(world: World) -> bool | Missing:
    batteries = _supplies(world, "Battery")
    if not batteries:
        return Missing("not-applicable")
    mains = [world.words(f"{supply}/online") for supply in _supplies(world, "Mains")]
    if mains:
        return "1" not in mains
    # Laptops charged over USB-C may have no mains entry: then the battery itself must say that it empties.
    return any(world.words(f"{battery}/status") == "Discharging" for battery in batteries)


def _supplies(world: World, kind: str) -> list[str]:
    folder = "/sys/class/power_supply"
    found = [f"{folder}/{entry.name}" for entry in world.entries(folder)]
    # A wireless mouse has a battery too: its scope is "Device".
    return [supply for supply in found if world.words(f"{supply}/type") == kind and world.words(f"{supply}/scope") != "Device"]


def gpu_switch(world: World) -> str | Missing:
    if "1" in (world.words(f"{ASUS}/dgpu_disable"), world.words(f"{ASUS_ARMOURY}/dgpu_disable/current_value")):
        return "eco"
    if "0" in (world.words(f"{ASUS}/gpu_mux_mode"), world.words(f"{ASUS_ARMOURY}/gpu_mux_mode/current_value")):
        return "discrete"
    prime = PRIME.get(world.words("/etc/prime-discrete"))
    if prime:
        return prime
    if world.path("/etc/udev/rules.d/50-remove-nvidia.rules").exists():
        return "integrated"  # EnvyControl takes the card off the bus by this rule
    return _supergfx(world)


def _supergfx(world: World) -> str | Missing:
    text = world.text("/etc/supergfxd.conf")
    if isinstance(text, Missing):
        return Missing("not-reported")
    try:
        mode = str(json.loads(text).get("mode", "")).lower()
    except (ValueError, AttributeError):
        return Missing("unreadable", "/etc/supergfxd.conf")
    return SUPERGFX.get(mode, Missing("not-reported"))
