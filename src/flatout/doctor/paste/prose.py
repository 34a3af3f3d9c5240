"""Cards, drivers and versions that stand somewhere in a sentence: the weakest witness, asked last."""

from __future__ import annotations

import re

from flatout.base.records import Missing
from flatout.doctor.paste import builds, fields, names
from flatout.doctor.paste.builds import VERSION
from flatout.doctor.paste.clean import Text
from flatout.doctor.paste.draft import Draft, Rank

_TORCH = re.compile(
    rf"\b(?:py)?torch(?: version| itself| build|版本)?(?:\s?(?:===?|=|:|is|v|-|为|是)|\s)\s?\(?v?({VERSION})(?![\w.]*[<>*])",
    re.I,
)
# A version with its build: torch's, where nobody says whose.
_LOCAL = re.compile(r"(?<![\w=.-])([12]\.\d{1,2}\.\d\+(?:cpu|cu\d{2,3}|rocm[\d.]+))\b")
# A version that was tried, is wanted, or is only asked for.
_NOT_THIS = re.compile(
    r"(?:works?|worked|fine|ok|fixed|solved|downgrad\w*|upgrad\w*|updat\w*|switch\w*|install\w*|requirement|found for"
    r"|needs?|requires?|support\w*|until|before|previously|from|instead of"
    r"|升级|降级|降到|换成|以前|之前|正常)[ :]{0,2}(?:[\w.]+ ){0,4}$",
    re.I,
)
_INDEX = re.compile(r"\b(?:whl/|index\D{0,12}|nightly/)(cu\d{2,3}|cpu|rocm[\d.]+)\b", re.I)
_TAG = re.compile(
    r"\b(cu\d{3}) (?:wheels?|builds?|version|nightl\w+|index)|(?:built|compiled|wheel|torch\S*"
    r"|pytorch\S*)[ ,]{1,2}(?:with |for |against |using )?(?:cuda |\+ ?cuda )(\d{1,2}\.\d)\b",
    re.I,
)
_DRIVER = re.compile(
    r"(?:\bdriver|驱动)s?(?: version|程序|版本)?(?: is| on \w+|:|=|为|是|号)? ?v?(\d{3}\.\d{2,3}(?:\.\d{2,3})?)\b"
    r"|\b(\d{3}\.\d{2,3}(?:\.\d{2})?) drivers?\b",
    re.I,
)
_BRANCH = re.compile(
    r"\bdrivers?(?: version| branch)? v?(\d{3})(?:\.x{1,2}|x{2})?\b(?![\d.])|\bnvidia-(?:driver-)?(\d{3})\b", re.I
)
_SMI_CUDA = re.compile(
    r"nvidia-smi\b[^\n]{0,40}?\bcuda(?: version)?\W{0,3}(\d{1,2}\.\d)\b|cuda (\d{1,2}\.\d) in nvidia-smi", re.I
)
_ARCHES = re.compile(r"(?:['\"]?(?:sm|compute)_\d{2,3}[af]?['\"]?[\s,.…;]{0,8}){2,}")
_ARCH_NUMBERS = re.compile(
    r"arch(?:itecture)?[ _]list\W{0,8}(?:is |=|:)?\W{0,3}((?:\d{1,2}\.\d(?:\+PTX)?[;, ]{1,2}){2,}\d{1,2}\.\d)", re.I
)
_AVAILABLE = re.compile(
    r"is_available\(\)[^\n]{0,20}?\btrue\b(?![^\n]{0,20}(?:on|with|in|before)\b)|\bcuda is available\b(?!\?)"
    r"|cuda available: true|cuda可用|\.cuda\(\) works|works? on cuda:\d|tensor\([^\n]{0,80}device='cuda",
    re.I,
)
_EXCLUSIVE = re.compile(
    r"\bexclusive[_ -]?(?:process|mode|compute)|\bE\. ?Process\b|\bcompute mode\b[^\n]{0,30}?\b(?:exclusive|prohibited)"
    r"|独占模式",
    re.I,
)
_MIG = re.compile(
    r"\bMIG\b(?: \w+){0,3}? ?(?:instances?|devices?|slices?|enabled|mode|partition\w*|gpus?|uuid|实例|设备)|\bMIG-[0-9a-fG]"
    r"|\b[1-7]g\.\d{1,3}gb\b"
)
_GFX = re.compile(r"\bgfx[0-9a-f]{3,5}\b", re.I)
_LAPTOP = re.compile(
    r"\blaptops?\b|\bnotebook (?:pc|computer|gpu)\b|笔记本|\b(?:zephyrus|legion|thinkpad|macbook|omen|alienware|rog flow"
    r"|strix|tuf gaming)\b",
    re.I,
)
_BATTERY = re.compile(r"\b(?:on|using) battery|unplugged|用电池|电池供电|未插电", re.I)
_GENERATION = re.compile(r"\b(?:rtx|geforce)? ?50(?:xx|x0| ?series)\b|\bblackwell\b|50系", re.I)


def read(text: Text, draft: Draft) -> None:
    _torch(text, draft)
    _arches(text, draft)
    _driver(text, draft)
    _cards(text, draft)
    _modes(text, draft)
    if _LAPTOP.search(text.flat):
        draft.put("hardware.laptop", True, Rank.PROSE)
    if _BATTERY.search(text.flat):
        draft.put("hardware.on_battery", True, Rank.PROSE)


def _torch(text: Text, draft: Draft) -> None:
    later = None
    for match in _TORCH.finditer(text.flat):
        build = builds.parse(match[1])
        if build is None:
            continue
        before = text.flat[max(0, match.start() - 50) : match.start()].rpartition("\n")[2]
        if _NOT_THIS.search(before):
            later = later or build
        else:
            builds.record(draft, build, Rank.PROSE)
            break
    local = _LOCAL.search(text.flat)
    if local and isinstance(draft.facts.torch.version, Missing) and later is None:
        builds.record(draft, builds.parse(local[1]) or builds.Build(version=local[1]), Rank.PROSE)
    if later and isinstance(draft.facts.torch.version, Missing) and "matching" not in text.lower and "satisf" not in text.lower:
        builds.record(draft, later, Rank.GUESSED)
    if isinstance(draft.facts.torch.cuda, Missing):
        tag = _TAG.search(text.flat)
        index = _INDEX.search(text.flat)
        value = (builds.cuda_of_tag(tag[1].lower()) if tag[1] else tag[2]) if tag else None
        if value is None and index and index[1].lower().startswith("cu"):
            value = builds.cuda_of_tag(index[1].lower())
        if value:
            draft.put("torch.cuda", value, Rank.PROSE)
    if _AVAILABLE.search(text.flat) and draft.facts.torch.available is not False and not draft.has("cuda-not-available"):
        draft.put("torch.available", True, Rank.PROSE)


def _arches(text: Text, draft: Draft) -> None:
    best: list[str] = []
    for match in _ARCHES.finditer(text.flat):
        found = re.findall(r"(?:sm|compute)_\d{2,3}[af]?", match.group())
        if len(found) > len(best):
            best = list(dict.fromkeys(found))
    numbers = _ARCH_NUMBERS.search(text.flat)
    if not best and numbers:
        best = [f"sm_{a}{b}" for a, b in re.findall(r"(\d{1,2})\.(\d)", numbers[1])]
    if best:
        draft.put("torch.arch_list", best, Rank.SAID)


def _driver(text: Text, draft: Draft) -> None:
    match = _DRIVER.search(text.flat) or _BRANCH.search(text.flat)
    if match:
        value = match[1] or match[2]
        if 300 <= int(value[:3]) <= 700:
            draft.put("driver.version", value, Rank.PROSE)
    smi = _SMI_CUDA.search(text.flat)
    if smi:
        draft.put("driver.cuda", smi[1] or smi[2], Rank.PROSE)


def _cards(text: Text, draft: Draft) -> None:
    if any(gpu.vendor == "nvidia" for gpu in draft.gpus) and len(draft.gpus) == len([g for g in draft.gpus if g.name]):
        _others(text, draft)
        return
    for named in names.spot(text.flat)[:8]:
        fields.mention(draft, named)
    if not draft.gpus and _GENERATION.search(text.flat):
        draft.put("torch.capabilities", ["12.0"], Rank.GUESSED)
    if isinstance(draft.facts.torch.capabilities, Missing) and len(draft.devices) == 1:
        # "…cannot use GeForce GT 740M (cc 3.0)" names the number beside the card; elsewhere it may be anybody's.
        value = names.capability_in(text.flat)
        if value and not value.startswith("gfx") and value.count(".") == 1 and len(set(re.findall(r"sm_\d+", text.lower))) <= 1:
            draft.put("torch.capabilities", [value], Rank.PROSE)


def _others(text: Text, draft: Draft) -> None:
    """Beside the driver's cards, the graphics that it does not drive."""
    for named in names.spot(text.flat):
        if named.vendor in ("intel", "amd"):
            draft.device(named.vendor, named.name, named.kind)


def _modes(text: Text, draft: Draft) -> None:
    """What is set on a card, told in words; the card is the one that was named."""
    name = next((str(device.name) for device in draft.devices if device.vendor == "nvidia"), "NVIDIA GPU")
    if _EXCLUSIVE.search(text.flat) and not any(isinstance(gpu.compute_mode, str) for gpu in draft.gpus):
        draft.gpu(0, name).compute_mode = "exclusive_process"
    if _MIG.search(text.flat) and not any(isinstance(gpu.mig_enabled, bool) for gpu in draft.gpus):
        draft.gpu(0, name).mig_enabled = True
    for code in dict.fromkeys(match.lower() for match in _GFX.findall(text.flat)):
        if code not in {gpu.capability for gpu in draft.gpus}:
            inside = code in names.INTEGRATED_GFX
            gpu = draft.gpu(len(draft.gpus), "AMD integrated graphics" if inside else "AMD GPU")
            gpu.vendor, gpu.capability = "amd", code
