"""What the kernel and the bus say: lspci, lsmod, modprobe, /dev, /proc/driver/nvidia, dmesg, mokutil, df."""

from __future__ import annotations

import re

from flatout.doctor.paste import names
from flatout.doctor.paste.clean import Text
from flatout.doctor.paste.draft import Draft, Rank
from flatout.machine.machine_facts import PciDevice, Xid

_PCI = re.compile(
    r"(?:^|\s)((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]) (?:VGA compatible controller|3D controller"
    r"|Display controller)"
    r"(?: \[03\w\w\])?: (.{3,160})$",
    re.I,
)
_IDS = re.compile(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]", re.I)
_IN_USE = re.compile(r"Kernel driver in use: (\S+)", re.I)
_WIDTH = re.compile(r"Lnk(Sta|Cap):.{0,60}?Speed ([\d.]+)GT/s.{0,40}?Width x(\d+)", re.I)
_MODULE = re.compile(r"\s*(nvidia(?:_\w+)?|nouveau|amdgpu|i915|xe)\s+\d+\s+\d+(?:\s+[\w,]*)?\s*$")
_NODE = re.compile(r"(?<!\w)(/dev/(?:nvidia(?:\d+|ctl|-uvm(?:-tools)?|-modeset)|dxg|kfd))\b")
_NO_NODE = re.compile(r"(?:cannot access|no such file|not exist|missing|doesn't exist|没有那个文件|不存在)", re.I)
_NVRM = re.compile(r"NVRM version: NVIDIA UNIX (?:Open )?(?:Kernel Module for )?\S+ +(?:Kernel Module +)?(\d{3}\.[\d.]+)")
_MISMATCH = re.compile(r"client has the version (\d{3}\.[\d.]+\d).{0,80}?kernel module has the version (\d{3}\.[\d.]+\d)", re.I)
_LIBRARY = re.compile(r"NVML library version:? ?(\d{3}\.[\d.]*\d)", re.I)
_XID = re.compile(r"\bxid(?:s|\(s\))?(?: errors?| code| id)?\W{0,4}(?:\((PCI:[^)\n]{1,24})\)\W{0,3})?(\d{1,3})\b", re.I)
_SHM = re.compile(r"(?:^|\s)(?:shm|tmpfs)\s+([\d.]+)([KMGT])i?\b[^\n]{0,60}/dev/shm", re.I)
_SHM_SIZE = re.compile(r"--shm-size[= ]['\"]?([\d.]+) ?([kmg])", re.I)
_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECURE_BOOT = re.compile(
    r"secure ?boot(?: is| state:?|:)? ?(enabled|on|active|disabled|off)|required key not available"
    r"|key was rejected by service|安全启动(?:已)?(开启|启用|打开)",
    re.I,
)
_NOT_LOADED = (
    r"(?:not|isn'?t|wasn'?t|never|cannot be|can'?t be|fails? to(?: be)?|failed to|could not|couldn'?t) (?:be )?(?:load"
    r"|insert|found|present|there|creat)\w*|missing|absent|没有?(?:被)?加载|未加载|缺失"
)
_UVM = re.compile(
    rf"nvidia[-_]uvm(?:\.ko| kernel)?(?: module)?[^\n]{{0,50}}?(?:{_NOT_LOADED})|(?:{_NOT_LOADED})[^\n]{{0,40}}?nvidia[-_]uvm"
    r"|modprobe (?:-\w )?nvidia[-_]uvm[^\n]{0,40}?(?:fix|work|solv|help|解决)|(?:after|run\w*"
    r"|need\w*)[^\n]{0,20}modprobe nvidia[-_]uvm",
    re.I,
)
_NO_MODULE = re.compile(
    r"module '?nvidia'? not found|no (?:nvidia )?(?:kernel )?modules? (?:found |built )?for (?:this |the (?:running|new"
    r"|current) )?kernel|modprobe: (?:fatal|error)[^\n]{0,40}nvidia(?![-_]uvm)"
    r"|dkms[^\n]{0,60}(?:fail|error|bad exit|not built)|nvidia(?:\.ko| (?:kernel )?module"
    r"|(?: kernel)? driver module)[^\n]{0,30}(?:missing|(?:not|isn'?t|wasn'?t) (?:built|compiled|loaded|found|installed))"
    r"|built (?:only )?(?:for|against) (?:the )?(?:previous|old|another|different) kernel|内核模块(?:未|没有|不)",
    re.I,
)
_NOUVEAU = re.compile(
    r"nouveau(?: kernel)?(?: driver| module)?[^\n]{0,30}(?:is |was |got |being |still )?(?:loaded|in use|active|used"
    r"|running|conflict|blacklist|block|grab|take)\w*|driver in use: nouveau|(?:using|uses|loaded|conflict\w*|disable"
    r"|blacklist\w*|with|禁用)(?: the)? nouveau|nouveau驱动",
    re.I,
)


def read(text: Text, draft: Draft) -> None:
    _bus(text, draft)
    _modules(text, draft)
    _versions(text, draft)
    for match in _XID.finditer(text.flat):
        number = int(match[2])
        draft.symptom("xid", number=number)
        draft.add("driver.xids", Xid(number=number, pci=match[1]) if match[1] else Xid(number=number))
    shm = _SHM.search(text.flat) or _SHM_SIZE.search(text.flat)
    if shm:
        draft.put("application.shm_bytes", int(float(shm[1]) * _SIZES[shm[2].upper()]), Rank.PRINTED)
    boot = _SECURE_BOOT.search(text.flat)
    if boot:
        draft.put("driver.secure_boot", (boot[1] or "on").lower() not in ("disabled", "off"), Rank.SAID)
    _fabric(text, draft)


def _bus(text: Text, draft: Draft) -> None:
    device: PciDevice | None = None
    for line in text.lines:
        match = _PCI.search(line)
        if match:
            device = _device(match[1], match[2])
            draft.add("hardware.pci", device)
            continue
        if device is None:
            continue
        used, link = _IN_USE.search(line), _WIDTH.search(line)
        if used:
            device.kernel_driver = used[1]
        if link and link[1].lower() == "sta":
            device.link_width, device.link_gts = int(link[3]), float(link[2])
        elif link:
            device.link_width_max, device.link_gts_max = int(link[3]), float(link[2])


def _device(address: str, description: str) -> PciDevice:
    ids = _IDS.search(description)
    lower = description.lower()
    vendor = "nvidia" if "nvidia" in lower else "amd" if re.search(r"\bamd\b|advanced micro|\bati\b", lower) else "other"
    vendor = "intel" if "intel" in lower else vendor
    inner = re.search(r"\[([^\]:]{4,60})\]", description)
    named = names.one(inner[1]) if inner and vendor == "nvidia" else None
    kind = "discrete" if vendor == "nvidia" else "integrated" if vendor == "intel" else "unknown"
    device = PciDevice(
        address=address, vendor=vendor, kind=kind, name=named.name if named else (inner[1] if inner else description[:80])
    )
    if ids:
        device.vendor_id, device.device_id = ids[1].lower(), ids[2].lower()
    return device


def _modules(text: Text, draft: Draft) -> None:
    for line in text.lines:
        match = _MODULE.match(line)
        if match:
            draft.add("driver.modules", match[1])
        for node in _NODE.findall(line):
            if _NO_NODE.search(line):
                draft.notes["no-node"] = node
            elif re.match(r"\s*crw", line):
                draft.add("driver.device_nodes", node)
    if draft.notes.get("no-node", "").endswith("uvm") or _UVM.search(text.flat):
        # The driver's own module is there, the one that CUDA needs is not.
        draft.put("driver.modules", ["nvidia"], Rank.SAID)
    if _NO_MODULE.search(text.flat):
        draft.put("driver.module_installed", False, Rank.SAID)
        draft.put("driver.smi", "failed", Rank.GUESSED)  # it cannot do otherwise
    loaded = draft.facts.driver.modules
    if _NOUVEAU.search(text.flat) and not (isinstance(loaded, list) and "nvidia" in loaded):
        draft.add("driver.modules", "nouveau")


def _versions(text: Text, draft: Draft) -> None:
    nvrm = _NVRM.search(text.tokens)
    if nvrm:
        draft.put("driver.kernel_version", nvrm[1], Rank.PRINTED)
    mismatch = _MISMATCH.search(text.tokens)
    if mismatch:
        draft.put("driver.version", mismatch[1], Rank.PRINTED)
        draft.put("driver.kernel_version", mismatch[2], Rank.PRINTED)
        draft.symptom("nvml-version-mismatch", library=mismatch[1])
    library = _LIBRARY.search(text.flat)
    if library:
        draft.put("driver.version", library[1], Rank.SAID)
        draft.notes["nvml"] = library[1]


def _fabric(text: Text, draft: Draft) -> None:
    lower = text.lower
    if "fabric" not in lower:
        return
    off = re.search(
        r"fabric[- ]?manager[^\n]{0,80}?(not installed|missing|inactive|dead|failed|not running|not started|stopped"
        r"|disabled|could not be found|没有安装|未安装|未启动)",
        lower,
    )
    off = off or re.search(r"(?:install|start|enabl|restart|安装|启动)\w*[^\n]{0,30}fabric[- ]?manager", lower)
    if off:
        missing = any(word in off.group() for word in ("not installed", "missing", "not be found", "安装"))
        draft.put("driver.fabric_manager", "not-installed" if missing else "inactive", Rank.SAID)
        draft.put("driver.nvswitch", True, Rank.GUESSED)
    elif re.search(r"fabric[- ]?manager[^\n]{0,60}active \(running\)", lower):
        draft.put("driver.fabric_manager", "active", Rank.PRINTED)
