"""`key: value` lines: collect_env's, its relatives', and those that people fill in."""

from __future__ import annotations

import re
from collections.abc import Callable

from flatout.doctor.paste import builds, host, names, variables
from flatout.doctor.paste.clean import Text
from flatout.doctor.paste.draft import Draft, Rank
from flatout.doctor.paste.names import Named
from flatout.doctor.paste.smi import mode_named

_PAIR = re.compile(r"\s*[-*•+]?\s*[\"']?([A-Za-z一-鿿][\w .()/#一-鿿-]{0,50}?)[\"']?\s*(?::|=(?!=))\s*(.*)$")
_GPU = re.compile(r"(?:.{0,60}configuration\s*:\s*)?\s*[-*]?\s*(?:GPU|Device|显卡)\s?#?(\d{1,2})\s*[:=]\s*(.+)$", re.I)
_NOTHING = (
    "could not collect",
    "none",
    "n/a",
    "null",
    "no",
    "nan",
    "-",
    "?",
    "unknown",
    "无",
    "没有",
    "not available",
    "not found",
)
_VERSION = re.compile(r"\d+(?:\.\d+){0,3}")
_DRIVER = re.compile(r"\b(\d{3}\.\d{2,3}(?:\.\d{2})?)\b")
_CUDA = re.compile(r"\b(\d{1,2}\.\d)\b")
_ENTRY = re.compile(r"(?:PyTorch|torch) version\s*:?\s+\S", re.I)

Handler = Callable[[Draft, str, Rank], None]


def read(text: Text, draft: Draft) -> None:
    near = ""  # what the last lines were about: decides what a bare "CUDA version" means
    for line in text.lines:
        card = _GPU.match(line)
        if card and len(card[2]) < 120:
            listed(draft, int(card[1]), card[2])
            continue
        if _ENTRY.match(line.strip()) and ":" not in line:
            line = re.sub(r"(?i)(version)\s+", r"\1: ", line.strip(), count=1)
        pair = _PAIR.match(line)
        if pair and len(pair[2]) < 600:
            key = re.sub(r"[\s_.-]+", " ", re.sub(r"\(.*?\)", " ", pair[1].lower())).strip()
            near = _pair(draft, key, pair[2].strip().strip("'\",").strip(), line, near)


def _pair(draft: Draft, key: str, value: str, line: str, near: str) -> str:
    if key in ("cuda version", "cuda", "cuda版本", "cuda ver"):
        _cuda_version(draft, value, line, near)
        return near
    tool = COLLECT_ENV.get(key)
    handler = tool or PEOPLE.get(key)
    if handler:
        handler(draft, value, Rank.PRINTED if tool else Rank.SAID)
    if "driver" in key or "驱动" in key:
        return "driver"
    return "torch" if "torch" in key else near


def _cuda_version(draft: Draft, value: str, line: str, near: str) -> None:
    """nvidia-smi's is the newest that the driver supports; a script that prints torch's version prints torch's."""
    match = _CUDA.search(value)
    if not match:
        if near == "torch" and value.lower() in ("none", "cpu"):
            draft.put("torch.cuda", "none", Rank.PRINTED)
    elif "NVIDIA-SMI" in line or "Driver Version" in line or near == "driver":
        draft.put("driver.cuda", match[1], Rank.PRINTED)
    elif near == "torch":
        draft.put("torch.cuda", match[1], Rank.SAID)
    elif "Version" in line:
        draft.put("driver.cuda", match[1], Rank.SAID)
    else:
        draft.add("cuda.toolkits", match[1])


def nothing(value: str) -> bool:
    return not value or value.lower().strip(" .") in _NOTHING


# -- torch ---------------------------------------------------------------------------------------------------------


def _torch_version(draft: Draft, value: str, rank: Rank) -> None:
    if value.lower().startswith("n/a"):
        draft.put("torch.status", "import-failed", rank)
        return
    build = builds.parse(re.sub(r"^\D*?(?=\d)", "", value)) if len(value) < 80 else None
    if build:
        builds.record(draft, build, rank)
        if re.search(r"\(?\bcpu\b", value[len(build.version) :], re.I):
            draft.put("torch.cuda", "none", rank)


def _built_with(draft: Draft, value: str, rank: Rank) -> None:
    match = re.match(r"(?:cu(?:da)?\s?)?(\d{1,2}\.\d)", value, re.I)
    tag = re.match(r"cu(\d{2,3})\b", value, re.I)
    if match or tag:
        draft.put("torch.cuda", match[1] if match else builds.cuda_of_tag(tag[1]), rank)  # type: ignore[index]
    # Only a build without CUDA leaves this empty; where torch itself is missing, its version says so.
    elif re.match(r"(?:none|could not collect|cpu|no)\b", value, re.I) and draft.facts.torch.status != "import-failed":
        draft.put("torch.cuda", "none", rank)


def _built_with_rocm(draft: Draft, value: str, rank: Rank) -> None:
    match = _VERSION.match(value)
    if match:
        draft.put("torch.hip", match.group(), rank)
        draft.put("torch.cuda", "none", rank)
    elif value.lower().startswith("n/a"):
        draft.put("torch.hip", "none", Rank.GUESSED)


def _available(draft: Draft, value: str, rank: Rank) -> None:
    lower = value.lower()
    if re.match(r"(?:true|yes|是|可用)", lower):
        draft.put("torch.available", True, rank)
    elif re.match(r"(?:false|no\b|否|不可用)", lower):
        draft.put("torch.available", False, rank)
        draft.symptom("cuda-not-available")


def _device_count(draft: Draft, value: str, rank: Rank) -> None:
    match = re.match(r"\d{1,3}\b", value)
    if match:
        draft.put("torch.device_count", int(match.group()), rank)


def _device_name(draft: Draft, value: str, rank: Rank) -> None:
    named = names.one(value)
    if named:
        draft.add("torch.devices", named.name)


def _arch_list(draft: Draft, value: str, rank: Rank) -> None:
    found = re.findall(r"(?:sm|compute)_\d{2,3}[af]?", value)
    found = found or [f"sm_{a}{b}" for a, b in re.findall(r"\b(\d{1,2})\.(\d)\b", value)]
    if found:
        draft.put("torch.arch_list", found, rank)


def _cudnn(draft: Draft, value: str, rank: Rank) -> None:
    match = re.search(r"libcudnn[\w-]*\.so\.([\d.]+)", value) or re.match(r"(\d[\d.]*)$", value)
    if match:
        draft.put("torch.cudnn", match[1], rank)


# -- driver and cards ----------------------------------------------------------------------------------------------


def _driver(draft: Draft, value: str, rank: Rank) -> None:
    if nothing(value):
        return  # not installed, not loaded, or only not in reach of this shell: collect_env cannot tell
    match = _DRIVER.search(value) or re.match(r"(\d{3})\b", value)
    if match:
        if value.lower().startswith("nvml"):
            draft.symptom("nvml-version-mismatch", library=match[1])
        draft.put("driver.version", match[1], rank)
        cuda = re.search(r"cuda (\d{1,2}\.\d)", value, re.I)
        if cuda:
            draft.put("driver.cuda", cuda[1], rank)


def _driver_cuda(draft: Draft, value: str, rank: Rank) -> None:
    match = _CUDA.search(value)
    if match:
        draft.put("driver.cuda", match[1], rank)


def _models(draft: Draft, value: str, rank: Rank) -> None:
    if nothing(value):
        return
    named = names.one(value)
    if named:
        _one(draft, len(draft.gpus), named)


def listed(draft: Draft, index: int, value: str) -> None:
    """`GPU 0: NVIDIA GeForce RTX 4080`, and "RTX 3090 / RTX 3060" where somebody wrote two in one."""
    uuid = re.search(r"\(UUID: *(GPU-[0-9a-f-]+)", value)
    if "MIG" in value.split("(UUID")[0].upper():
        gpu = draft.gpu(index)
        gpu.mig_enabled = True
    found = names.spot(value.split("(UUID")[0])
    if not found:
        one = names.one(value)
        found = [one] if one else []
    if not found and index in {gpu.index for gpu in draft.gpus}:
        draft.gpu(index).name = draft.gpu(index).name or value.strip()
    for offset, named in enumerate(found):
        _one(draft, index + offset, named)
        if uuid and offset == 0:
            draft.gpu(index).uuid = uuid[1]


def _one(draft: Draft, index: int, named: Named) -> None:
    if named.vendor == "intel":
        draft.device("intel", named.name, named.kind)
        return
    gpu = draft.gpu(index, named.name)
    gpu.vendor = named.vendor
    if named.capability:
        gpu.capability = named.capability
    if named.mig:
        gpu.mig_enabled = True
    if named.kind == "integrated":
        draft.device(named.vendor, named.name, named.kind)


def _cards(draft: Draft, value: str, rank: Rank) -> None:
    """A person's "GPU:": the card is there; whether the driver sees it is another matter."""
    for named in names.spot(value) or [card for card in (names.one(value),) if card]:
        for _ in range(1 if draft.gpus else named.count):
            mention(draft, named)


def mention(draft: Draft, named: Named) -> None:
    draft.device(named.vendor, named.name, named.kind)
    if named.capability and named.vendor == "nvidia":
        draft.put("torch.capabilities", [named.capability], Rank.PROSE)
    if named.mig:
        draft.gpu(0, named.name).mig_enabled = True
    known = {gpu.capability for gpu in draft.gpus} | {gpu.name for gpu in draft.gpus}
    if named.vendor == "amd" and named.capability and not {named.capability, named.name} & known:
        gpu = draft.gpu(len(draft.gpus), named.name)
        gpu.vendor, gpu.capability = "amd", named.capability


def _mode(draft: Draft, value: str, rank: Rank) -> None:
    if not nothing(value):
        draft.gpu(0, "NVIDIA GPU").compute_mode = mode_named(value)


def _count(draft: Draft, value: str, rank: Rank) -> None:
    match = re.match(r"\d{1,3}\b", value)
    if match:
        draft.put("cuda.device_count", int(match.group()), rank)


def _ordinal(draft: Draft, value: str, rank: Rank) -> None:
    match = re.match(r"(?:cuda:)?(\d{1,2})$", value)
    if match:
        draft.notes.setdefault("ordinal", match[1])


# -- the rest ------------------------------------------------------------------------------------------------------


def _toolkit(draft: Draft, value: str, rank: Rank) -> None:
    match = re.match(r"(?:release |v)?(\d{1,2}\.\d)(?:\.\d+)?", value, re.I)
    if match:
        draft.put("cuda.nvcc", match[1], rank)
        draft.add("cuda.toolkits", match[1])


def _processor(draft: Draft, value: str, rank: Rank) -> None:
    if not nothing(value) and len(value) > 4:
        draft.put("processor.model", value[:100], rank)


def _cores(draft: Draft, value: str, rank: Rank) -> None:
    if value.isdigit():
        draft.put("processor.cores", int(value), rank)


def _architecture(draft: Draft, value: str, rank: Rank) -> None:
    if value in ("x86_64", "aarch64", "AMD64", "arm64"):
        draft.put("system.architecture", value, rank)


def _workers(draft: Draft, value: str, rank: Rank) -> None:
    if re.match(r"0\b", value):
        draft.symptom("workers-zero")


def _laptop(draft: Draft, value: str, rank: Rank) -> None:
    if not nothing(value):
        draft.put("hardware.laptop", value.lower() != "false", rank)


def _module(name: str, value: bool) -> Handler:
    def put(draft: Draft, text: str, rank: Rank) -> None:
        if re.match(r"(?:true|yes|enabled|on)\b", text, re.I):
            draft.put(name, value, rank)

    return put


COLLECT_ENV: dict[str, Handler] = {
    "pytorch version": _torch_version,
    "cuda used to build pytorch": _built_with,
    "rocm used to build pytorch": _built_with_rocm,
    "os": host.os_field,
    "operating system": host.os_field,
    "python version": host.python_field,
    "python platform": host.platform_field,
    "is cuda available": _available,
    "cuda runtime version": _toolkit,
    "gpu models and configuration": _models,
    "nvidia driver version": _driver,
    "driver version": _driver,
    "cudnn version": _cudnn,
    "hip runtime version": lambda draft, value, rank: _built_with_rocm(draft, value, rank) if _VERSION.match(value) else None,
    "model name": _processor,
    "cpu(s)": _cores,
    "architecture": _architecture,
    "torch version": _torch_version,
    "torch   version  ": _torch_version,
    "torch version cuda": _built_with,
    "cuda available": _available,
    "torch cuda is available": _available,
    "device name": _device_name,
    "device count": _device_count,
    "torch cuda device count": _device_count,
    "kernel": host.kernel_field,
}
PEOPLE: dict[str, Handler] = {
    "torch": _torch_version,
    "pytorch": _torch_version,
    "pytorch/torch": _torch_version,
    "torch cuda": _built_with,
    "pytorch cuda": _built_with,
    "pytorch index": _built_with,
    "pytorch版本": _torch_version,
    "torch版本": _torch_version,
    "python": host.python_field,
    "python版本": host.python_field,
    "system": host.os_field,
    "platform": host.os_field,
    "操作系统": host.os_field,
    "系统": host.os_field,
    "distribution": host.os_field,
    "driver": _driver,
    "gpu driver": _driver,
    "nvidia driver": _driver,
    "graphics driver": _driver,
    "显卡驱动": _driver,
    "驱动版本": _driver,
    "驱动": _driver,
    "nvidia smi cuda": _driver_cuda,
    "driver cuda": _driver_cuda,
    "gpu": _cards,
    "gpus": _cards,
    "gpu name": _cards,
    "gpu model": _cards,
    "graphics card": _cards,
    "video card": _cards,
    "hardware": _cards,
    "显卡": _cards,
    "显卡型号": _cards,
    "gpu型号": _cards,
    "device": _cards,
    "gpu available": _available,
    "cuda is available": _available,
    "is available": _available,
    "cuda是否可用": _available,
    "arch list": _arch_list,
    "torch arch list": _arch_list,
    "get arch list": _arch_list,
    "compute mode": _mode,
    "gpu count": _count,
    "num gpus": _count,
    "device id": _ordinal,
    "gpu id": _ordinal,
    "local rank": _ordinal,
    "nvcc": _toolkit,
    "cuda runtime": _toolkit,
    "cuda toolkit": _toolkit,
    "cuda runtime nvcc": _toolkit,
    "rocm": _built_with_rocm,
    "rocm version": _built_with_rocm,
    "cpu": _processor,
    "num workers": _workers,
    "workers": _workers,
    "container": host.container_field,
    "docker": host.container_field,
    "laptop": _laptop,
    "notebook": _laptop,
    "secure boot": _module("driver.secure_boot", True),
    "cudnn": _cudnn,
    "cuda visible devices": variables.visible_field,
}
