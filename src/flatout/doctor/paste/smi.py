"""nvidia-smi's table, of the old and the new layouts, however wrapped: found by its bus addresses, not by its frame."""

from __future__ import annotations

import re

from flatout.doctor.paste import names
from flatout.doctor.paste.clean import Text
from flatout.doctor.paste.draft import Draft, Rank
from flatout.machine.machine_facts import Gpu, GpuProcess

MIB = 1 << 20

_HEADER = re.compile(
    r"NVIDIA-SMI (?:version *: *)?(?P<smi>\d{3}\.[\d.]{1,9}).{0,60}?(?:Driver|KMD) Version *: *(?P<driver>\d{3}\.[\d.]{1,9})"
    r"(?:.{0,40}?CUDA (?:UMD )?Version *: *(?P<cuda>\d{1,2}\.\d{1,2}))?"
)
_ROW = re.compile(
    r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]) (?P<display>On|Off|N/A) (?P<ecc>N/A|Off|\d+)\b"
)
_NAME = re.compile(
    r"(?:^| )(?P<index>\d{1,2}) (?P<name>[A-Za-z][^+=]{2,60}?)(?:\.\.\.)?(?: (?P<mode>On|Off|WDDM|TCC|MCDM|N/A))? $"
)
_STATE = re.compile(
    r"(?:\d+%|N/A|ERR!) (?:(?P<temp>\d+)C|N/A) (?P<pstate>P\d{1,2}|N/A|\?) (?:(?P<draw>\d+)W|N/A|ERR!|Unknown Error)(?: ?/ ?| )"
    r"(?:(?P<limit>\d+)W|N/A|ERR!|Unknown Error) (?P<used>\d+)MiB ?/ ?(?P<total>\d+)MiB"
    r"(?: (?P<util>\d+%|N/A) (?P<mode>Default|E\. ?Process|E\. ?Thread|Prohibited|Exclusive_Process)?)?(?: (?P<mig>N/A"
    r"|Enabled\*?|Disabled\*?))?"
)
_PROCESS = re.compile(
    r" (?P<gpu>\d{1,2}) (?:(?:N/A|\d+) (?:N/A|\d+) )?(?P<pid>\d{1,8}) (?P<type>C\+G|M\+C|C"
    r"|G) (?P<name>\S+(?: \S+){0,5}?) (?:(?P<used>\d+)MiB|N/A)(?= |$)"
)
_MODES = {"default": "default", "e.process": "exclusive_process", "exclusive_process": "exclusive_process"}
_MODES |= {"e.thread": "exclusive_thread", "prohibited": "prohibited"}


def read(text: Text, draft: Draft) -> None:
    tokens = text.tokens
    if "MiB" not in tokens and "SMI" not in tokens and "Disp.A" not in tokens:
        return
    header = _HEADER.search(tokens)
    if header:
        draft.put("driver.version", header["driver"], Rank.PRINTED)
        if header["cuda"]:
            draft.put("driver.cuda", header["cuda"], Rank.PRINTED)
        draft.put("driver.smi", "ok", Rank.PRINTED)
    rows = list(_ROW.finditer(tokens))
    for position, row in enumerate(rows):
        end = rows[position + 1].start() if position + 1 < len(rows) else len(tokens)
        _row(tokens, row, min(end, row.end() + 260), draft)
    _processes(tokens, draft)


def _row(tokens: str, row: re.Match[str], end: int, draft: Draft) -> None:
    head = _NAME.search(tokens[max(0, row.start() - 80) : row.start()])
    if not head:
        return
    named = names.one(head["name"])
    gpu = draft.gpu(int(head["index"]), named.name if named else head["name"].strip())
    gpu.pci_bus_id = row["bus"]
    gpu.display_active = row["display"] == "On"
    if row["ecc"].isdigit():
        gpu.ecc_uncorrected = int(row["ecc"])
    mode = head["mode"]
    if mode in ("WDDM", "TCC", "MCDM"):
        gpu.driver_model = mode
        draft.put("system.name", "Windows", Rank.PRINTED)
    elif mode in ("On", "Off"):
        gpu.persistence = mode == "On"
    state = _STATE.search(tokens, row.end(), end)
    if state:
        _state(state, gpu)
    draft.put("driver.smi", "ok", Rank.PRINTED)


def _state(state: re.Match[str], gpu: Gpu) -> None:
    if state["temp"]:
        gpu.temperature_c = int(state["temp"])
    if state["pstate"].startswith("P"):
        gpu.pstate = state["pstate"]
    if state["draw"]:
        gpu.power_draw_w = float(state["draw"])
    if state["limit"]:
        gpu.power_limit_w = float(state["limit"])
    used, total = int(state["used"]), int(state["total"])
    gpu.memory_total_bytes = total * MIB
    gpu.memory_free_bytes = max(total - used, 0) * MIB
    if state["util"] and state["util"] != "N/A":
        gpu.utilisation = min(int(state["util"].rstrip("%")), 100)
    if state["mode"]:
        gpu.compute_mode = mode_named(state["mode"])
    if state["mig"] and state["mig"] != "N/A":
        gpu.mig_enabled = state["mig"].startswith("Enabled")


def mode_named(text: str) -> str:
    return _MODES.get(text.replace(" ", "").lower(), text.lower())


def _processes(tokens: str, draft: Draft) -> None:
    start = tokens.find("Processes:")
    known = {gpu.index: gpu for gpu in draft.gpus}
    if start < 0 or not known:
        return
    if "No running processes found" in tokens[start:]:
        for gpu in known.values():
            gpu.processes = []
        return
    for match in _PROCESS.finditer(tokens, start):
        owner = known.get(int(match["gpu"]))
        if owner is None:
            continue
        if not isinstance(owner.processes, list):
            owner.processes = []
        used = int(match["used"]) * MIB if match["used"] else None
        process = GpuProcess(pid=int(match["pid"]), name=match["name"])
        if used is not None:
            process.memory_bytes = used
        owner.processes.append(process)
