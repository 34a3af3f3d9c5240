"""`nvidia-smi -q`, `-L` and `--query-gpu=… --format=csv`."""

from __future__ import annotations

import re
from collections.abc import Callable

from flatout.doctor.paste import names
from flatout.doctor.paste.clean import Text
from flatout.doctor.paste.draft import Draft, Rank
from flatout.doctor.paste.smi import MIB, mode_named
from flatout.machine.machine_facts import Gpu

_GPU = re.compile(r"\s*GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_PAIR = re.compile(r"\s*([A-Z][\w .()/-]{1,48}?)\s*:\s*(.*?)\s*$")
_SECTION = re.compile(r"\s*([A-Z][A-Za-z0-9 ()/-]{2,48}?)\s*$")
_LISTED = re.compile(r"\s*GPU (\d{1,2}) ?: *(.+?) *\(UUID: *(GPU-[0-9a-f-]{8,40})\)?")
_MIG = re.compile(r"\s*MIG \S+ +Device +\d+ ?: *\(UUID: *(MIG-[\w/-]+)\)?")
_EVENTS = {
    "Idle": "GPU_IDLE",
    "Applications Clocks Setting": "APPLICATIONS_CLOCKS_SETTING",
    "SW Power Cap": "SW_POWER_CAP",
    "HW Slowdown": "HW_SLOWDOWN",
    "HW Thermal Slowdown": "HW_THERMAL_SLOWDOWN",
    "HW Power Brake Slowdown": "HW_POWER_BRAKE_SLOWDOWN",
    "Sync Boost": "SYNC_BOOST",
    "SW Thermal Slowdown": "SW_THERMAL_SLOWDOWN",
    "Display Clock Setting": "DISPLAY_CLOCK_SETTING",
}


_UNCORRECTABLE = ("Double Bit", "DRAM Uncorrectable", "SRAM Uncorrectable", "SRAM Uncorrectable Parity")


def read(text: Text, draft: Draft) -> None:
    _listed(text.lines, draft)
    _csv(text.lines, draft)
    marked = any(_GPU.match(line) or "NVSMI LOG" in line or "Clocks Event Reasons" in line for line in text.lines)
    if marked or "Clocks Throttle Reasons" in text.flat:
        _query(text.lines, draft)


def _listed(lines: list[str], draft: Draft) -> None:
    last: Gpu | None = None
    for line in lines:
        match = _LISTED.match(line)
        if match:
            named = names.one(match[2])
            last = draft.gpu(int(match[1]), named.name if named else match[2])
            last.uuid = match[3]
            draft.put("driver.smi", "ok", Rank.PRINTED)
        elif last is not None and (mig := _MIG.match(line)):
            last.mig_enabled = True
            last.mig_devices = [*(last.mig_devices if isinstance(last.mig_devices, list) else []), mig[1]]


# -- -q ------------------------------------------------------------------------------------------------------------


def _query(lines: list[str], draft: Draft) -> None:
    index, section = -1, ""
    gpu: Gpu | None = None
    for line in lines:
        start = _GPU.match(line)
        if start:
            index += 1
            gpu = draft.gpu(index)
            gpu.pci_bus_id = start[1]
            continue
        pair = _PAIR.match(line)
        if not pair:
            heading = _SECTION.match(line)
            if heading:
                section = heading[1]
            continue
        if gpu is None and pair[1] in _EVENTS and section.startswith("Clocks"):
            gpu = draft.gpu(0)
        if gpu is not None:
            _field(gpu, section, pair[1], pair[2])
    for known in draft.gpus:
        if not known.name:
            known.name = "NVIDIA GPU"


def _field(gpu: Gpu, section: str, key: str, value: str) -> None:
    if value in ("N/A", "", "Not Active", "[N/A]") or "reset" in value.lower():
        if key in _EVENTS and section.startswith(("Clocks Event", "Clocks Throttle")) and not section.endswith("Counters"):
            gpu.clock_events = gpu.clock_events if isinstance(gpu.clock_events, list) else []
        return
    if key in _EVENTS and value == "Active":
        events = gpu.clock_events if isinstance(gpu.clock_events, list) else []
        gpu.clock_events = [*events, _EVENTS[key]] if _EVENTS[key] not in events else events
        return
    handler = _SECTIONS.get((section, key)) or _ANYWHERE.get(key)
    if handler:
        handler(gpu, value)
    elif key in _UNCORRECTABLE or (section == "Double Bit" and key == "Total"):
        _errors(gpu, value)


def _number(value: str) -> float | None:
    match = re.match(r"-?\d+(?:\.\d+)?", value)
    return float(match.group()) if match else None


def _whole(name: str, scale: int = 1) -> Callable[[Gpu, str], None]:
    def put(gpu: Gpu, value: str) -> None:
        number = _number(value)
        if number is not None:
            setattr(gpu, name, int(number * scale))

    return put


def _real(name: str) -> Callable[[Gpu, str], None]:
    def put(gpu: Gpu, value: str) -> None:
        number = _number(value)
        if number is not None:
            setattr(gpu, name, number)

    return put


def _truth(name: str) -> Callable[[Gpu, str], None]:
    def put(gpu: Gpu, value: str) -> None:
        setattr(gpu, name, value.lower() in ("enabled", "yes", "active", "on"))

    return put


def _name(gpu: Gpu, value: str) -> None:
    named = names.one(value)
    gpu.name = named.name if named else value


def _set(name: str) -> Callable[[Gpu, str], None]:
    return lambda gpu, value: setattr(gpu, name, value)


def _mode(gpu: Gpu, value: str) -> None:
    gpu.compute_mode = mode_named(value)


def _errors(gpu: Gpu, value: str) -> None:
    number = _number(value)
    if number is not None:
        gpu.ecc_uncorrected = (gpu.ecc_uncorrected if isinstance(gpu.ecc_uncorrected, int) else 0) + int(number)


_ANYWHERE: dict[str, Callable[[Gpu, str], None]] = {
    "Product Name": _name,
    "GPU UUID": _set("uuid"),
    "Persistence Mode": _truth("persistence"),
    "Display Active": _truth("display_active"),
    "Performance State": _set("pstate"),
    "Compute Mode": _mode,
    "GPU Current Temp": _whole("temperature_c"),
    "Remapping Failure Occurred": _truth("remap_failed"),
    "Pending Page Blacklist": _truth("ecc_pending"),
}
_SECTIONS: dict[tuple[str, str], Callable[[Gpu, str], None]] = {
    ("MIG Mode", "Current"): _truth("mig_enabled"),
    ("Driver Model", "Current"): _set("driver_model"),
    ("PCIe Generation", "Max"): _whole("link_generation_max"),
    ("PCIe Generation", "Current"): _whole("link_generation"),
    ("Link Width", "Max"): _whole("link_width_max"),
    ("Link Width", "Current"): _whole("link_width"),
    ("FB Memory Usage", "Total"): _whole("memory_total_bytes", MIB),
    ("FB Memory Usage", "Free"): _whole("memory_free_bytes", MIB),
    ("Utilization", "Gpu"): _whole("utilisation"),
    ("Utilization", "GPU"): _whole("utilisation"),
    ("Remapped Rows", "Pending"): _truth("ecc_pending"),
    ("Clocks", "SM"): _whole("sm_clock_mhz"),
    ("Max Clocks", "SM"): _whole("sm_clock_max_mhz"),
}
for _title in ("Power Readings", "GPU Power Readings"):
    _SECTIONS[_title, "Power Draw"] = _real("power_draw_w")
    _SECTIONS[_title, "Average Power Draw"] = _real("power_draw_w")
    _SECTIONS[_title, "Power Limit"] = _real("power_limit_w")
    _SECTIONS[_title, "Current Power Limit"] = _real("power_limit_w")
    _SECTIONS[_title, "Enforced Power Limit"] = _real("power_limit_w")
    _SECTIONS[_title, "Default Power Limit"] = _real("power_limit_default_w")
    _SECTIONS[_title, "Max Power Limit"] = _real("power_limit_max_w")

# -- csv -----------------------------------------------------------------------------------------------------------

_COLUMNS: dict[str, Callable[[Gpu, str], None]] = {
    "uuid": _set("uuid"),
    "gpu_uuid": _set("uuid"),
    "pci.bus_id": _set("pci_bus_id"),
    "compute_cap": _set("capability"),
    "memory.total": _whole("memory_total_bytes", MIB),
    "memory.free": _whole("memory_free_bytes", MIB),
    "utilization.gpu": _whole("utilisation"),
    "temperature.gpu": _whole("temperature_c"),
    "pstate": _set("pstate"),
    "power.draw": _real("power_draw_w"),
    "power.limit": _real("power_limit_w"),
    "power.default_limit": _real("power_limit_default_w"),
    "power.max_limit": _real("power_limit_max_w"),
    "clocks.sm": _whole("sm_clock_mhz"),
    "clocks.current.sm": _whole("sm_clock_mhz"),
    "clocks.max.sm": _whole("sm_clock_max_mhz"),
    "pcie.link.gen.current": _whole("link_generation"),
    "pcie.link.gen.max": _whole("link_generation_max"),
    "pcie.link.width.current": _whole("link_width"),
    "pcie.link.width.max": _whole("link_width_max"),
    "mig.mode.current": _truth("mig_enabled"),
    "compute_mode": _mode,
    "persistence_mode": _truth("persistence"),
    "driver_model.current": _set("driver_model"),
    "ecc.errors.uncorrected.volatile.total": _errors,
    "ecc.errors.uncorrected.aggregate.total": _errors,
}
_OTHER_COLUMNS = ("index", "name", "gpu_name", "driver_version", "timestamp", "memory.used", "count")


def _csv(lines: list[str], draft: Draft) -> None:
    columns: list[str] = []
    row = 0
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        heads = [re.sub(r"\s*\[.*", "", cell) for cell in cells]
        if len(heads) > 1 and all(head in _COLUMNS or head in _OTHER_COLUMNS for head in heads):
            columns, row = heads, 0
        elif columns and len(cells) == len(columns):
            _csv_row(dict(zip(columns, cells, strict=True)), row, draft)
            row += 1
        elif columns and line.strip():
            columns = []


def _csv_row(values: dict[str, str], row: int, draft: Draft) -> None:
    index = values.get("index", "")
    name = values.get("name") or values.get("gpu_name") or "NVIDIA GPU"
    gpu = draft.gpu(int(index) if index.isdigit() else row, name)
    if re.fullmatch(r"\d{3}\.[\d.]+", values.get("driver_version", "")):
        draft.put("driver.version", values["driver_version"], Rank.PRINTED)
    for column, value in values.items():
        if column in _COLUMNS and value not in ("[N/A]", "N/A", "[Not Supported]", ""):
            _COLUMNS[column](gpu, value)
    total, used = gpu.memory_total_bytes, _number(values.get("memory.used", ""))
    if isinstance(total, int) and used is not None and "memory.free" not in values:
        gpu.memory_free_bytes = max(total - int(used) * MIB, 0)
    draft.put("driver.smi", "ok", Rank.PRINTED)
