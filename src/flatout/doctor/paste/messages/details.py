"""The values inside messages, and which of two readings of one sentence holds."""

from __future__ import annotations

import re

from flatout.base.records import Missing
from flatout.doctor.paste import names
from flatout.doctor.paste.clean import Text
from flatout.doctor.paste.draft import Draft, Rank
from flatout.doctor.paste.messages import speed
from flatout.doctor.paste.messages.sentence import pattern
from flatout.machine import compatibility

_FOUND = re.compile(r"found version (\d{4,5})")
_NOT_COMPATIBLE = re.compile(
    r"\bwith\scuda\scapability\ssm_(\d{2,3})\sis\snot\scompatible"
    r"|found\sgpu\s?\d+\s([^\n]{2,60}?)\swhich\sis\sof\s(?:cuda|compute)\scapability\s(\d+)\s?\.(\d)"
    r"|\bis\s(?:of\s)?(?:compute|cuda)\scapability\ssm_(\d{2,3})\b"
    r"|\bsm_(\d{2,3})[af]?\b[^\n]{0,30}?\b(?:not\s(?:compatible|supported|included|available|present|in\b)|unsupported"
    r"|missing|isn't\s(?:supported|included))"
    r"|(?:no|without|lacks?|missing|not\s(?:support|includ|contain|built\sfor|compiled\sfor)\w*|doesn't\s(?:support"
    r"|include|contain)|不支持|没有)[^\n]{0,30}?\bsm_?(\d{2,3})\b"
    r"|capability\s(\d{1,2})\.(\d)[^\n]{0,30}?\b(?:not\ssupported|unsupported|not\scompatible|no\slonger)"
)
_EXTENSION = re.compile(
    r"\b(?:flash[-_ ]?attn|flash attention|xformers|vllm|bitsandbytes|mmcv|detectron2|pytorch3d|nvdiffrast|gsplat"
    r"|sageattention|spconv|onnxruntime|llama)\b"
)
_RUN = re.compile(r"(?:['\"]?sm_\d{2,3}[af]?['\"]?[\s,.…;]{0,8}){3,}")
_SUPPORTED = re.compile(
    r"(?:supports?\scuda\scapabilit(?:y|ies)|kernels\sfor|built\sfor|compiled\sfor"
    r"|arch\slist)\W{0,3}((?:\W{0,6}sm_\d{2,3}[af]?){2,})"
)
_REQUIREMENT = re.compile(
    r"(?:satisfies\sthe\srequirement|distribution\sfound\sfor|candidates\sfor"
    r"|requirement)\s['\"]?(torch\w*)\s?(?:([=<>!~]=?=?)\s?\(?([\w.+*]+))?"
)
_VERSIONS = re.compile(r"from\sversions:?\s([^)\n]{1,300})")
_INDEX = re.compile(
    r"(https?://[\w./-]*?/whl(?:/[\w./-]*)?)|\bwhl/((?:nightly/)?(?:cu\d{2,3}|cpu|rocm[\d.]+))\b|(?:index"
    r"|--extra-index-url|-f)\b[^\n]{0,40}?\b(cu\d{2,3})\b"
)
_WHEEL = re.compile(r"\btorch-([\w.+%]{1,40})-cp(3)(\d{1,2})-[\w.]+")
_DLL = re.compile(r"([\w.+-]{2,60}\.dll)\b")
_SO = re.compile(r"(lib[\w+-]{2,40}\.so[.\d]*)(?::?\scannot\sopen|[^\n]{0,80}cannot\sopen\sshared)")
_LOAD = re.compile(r"could\snot\sload\s(?:dynamic\s)?library\s['\"]?(lib[\w+.-]{2,50})")
_CUDNN = re.compile(
    r"compiled\sagainst\s\((\d+),\s(\d+),\s(\d+)\)[^\n]{0,80}?\((\d+),\s(\d+),\s(\d+)\)"
    r"|runtime\scudnn\slibrary:?\s([\d.]+)[^\n]{0,40}compiled\swith:?\s([\d.]+)"
)
_SYMBOL = re.compile(
    r"(lib[\w+.-]{2,50}):?\sundefined\ssymbol|(lib[\w+.-]{2,50}):\ssymbol\s|undefined\ssymbol:\s\w+,?\sversion\s(lib[\w.]+)"
)
_DEVICES = re.compile(r"(cuda:\d|cpu|mps|xpu)\s?(?:and|,|与|和)\s(?:on\s)?(cuda:\d|cpu|mps|xpu)")
_TYPES = re.compile(r"input\stype\s\(torch\.(cuda\.)?\w+\)\sand\sweight\stype\s\(torch\.(cuda\.)?\w+\)")
_ORDINAL = re.compile(
    r"invalid\sdevice\sordinal[^\n]{0,60}?\b(?:cuda:|device[_ ]?(?:id)?\s?[=:]?\s?|gpu\s?|rank\s?[=:]?\s?)(\d{1,2})\b"
    r"|(?:set_device\(|device=|deserialize\sobject\son\scuda\sdevice\s|device\sid\s"
    r"|local_rank\s?[=:]\s?)['\"]?(?:cuda:)?(\d{1,2})\b|\bcuda:([1-9]\d?)\b"
)
_COUNT_IS = re.compile(
    r"device_count(?:\(\))?[^\n\d]{0,24}?(?:out\[\d{1,3}\]:?|==?|->|:|>|returns?|returned|is|gives?|shows?|为|返回"
    r"|是)\s?(\d{1,2})\b(?!\.)"
)
_SHOWN = re.compile(
    r"only\sthe\s(first)\b|(?:only|just)\s(?:\w+\s){0,2}?(one|two|three|\d)\s(?:of\s(?:the\s"
    r"|my\s)?)?(?:\w+\s){0,2}?(?:gpus?|devices?|cards?)"
    r"|(?:shows?|sees?|detects?|finds?|uses?|recogni[sz]es?)\s(?:only|just)\s(?:\w+\s)?(one|two|three|\d)\b|只(?:能)?(?:识别"
    r"|检测|看到|显示|找到|用)(?:到|出)?(?:了)?\s?([一两二三1-9])"
)
_EXPECTED = re.compile(
    r"(?:of|have|has|with|use|see|access|across|over|lists?|instead\sof|out\sof|there\sare|although|shows?)\s(?:my\s"
    r"|the\s)?(two|three|four|eight"
    r"|\d)\s(?:\w+\s)?(?:gpus?|cards?|devices?)"
)
_NUMBERS = {"one": 1, "first": 1, "two": 2, "three": 3, "four": 4, "eight": 8, "一": 1, "两": 2, "二": 2, "三": 3}
_SIZE = r"(\d+(?:\.\d+)?)\s(b|kib|mib|gib|tib|mb|gb|bytes)"
_SIZES = {"b": 1, "bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40, "mb": 1 << 20, "gb": 1 << 30}
_MEMORY = {
    "tried_bytes": re.compile(rf"tried\sto\sallocate\s{_SIZE}"),
    "total_bytes": re.compile(rf"{_SIZE}\stotal\scapacity|total\scapacity\sof\s{_SIZE}"),
    "allocated_bytes": re.compile(rf"{_SIZE}\salready\sallocated|{_SIZE}\sis\sallocated\sby\spytorch"),
    "free_bytes": re.compile(rf"{_SIZE}\sfree|of\swhich\s{_SIZE}\sis\sfree"),
    "other_bytes": re.compile(rf"(?<!this\s)process\s\d+\shas\s{_SIZE}\smemory\sin\suse"),
}
_RESERVED = re.compile(rf"{_SIZE}\sreserved\sin\stotal|{_SIZE}\scached")
_UNALLOCATED = re.compile(rf"{_SIZE}\sis\sreserved\sby\spytorch\sbut\sunallocated")
_HIP = re.compile(r"\bhip(?:\serror:?|:)\s([a-z][^\n.]{2,80})|\b(hiperror\w+)|(rocblas\serror[^\n]{0,80})")
_LINK = re.compile(
    r"gen\s?(\d)\s?@?\s?x?\s?(\d{1,2})x?\b|\bx\s?(\d{1,2})\b[^\n]{0,30}?(?:instead\sof|of|vs\.?|max\w*"
    r"|rather\sthan)\sx?\s?(16|8)\b|width\sx(\d+)\s\(downgraded\)"
)
_DOCKER = re.compile(r"\b(?:docker|podman|nvidia-docker)\s(?:container\s)?run\s[^\n]{0,400}|\bdocker\srun\b")
_ASKS_GPU = re.compile(
    r"--gpus|--runtime[= ]\"?nvidia|nvidia-docker|nvidia\.com/gpu|--device[= ]/dev/nvidia|--device[= ]/dev/(?:kfd|dri)"
)
_FLAGLESS = re.compile(
    r"(?:forg[eo]t\w*|without|missing|no|lacks?|need\w*|add\w*|omitted|没加|忘记加|没有加|缺少)\s(?:to\s(?:add|pass"
    r"|use)\s)?(?:the\s)?['\"]?--(?:gpus|device[= ]nvidia|runtime)|deploy\.resources|no\s(?:gpu\s)?(?:reservation"
    r"|device\srequest)"
)
_LOW = tuple(pattern(text) for text in speed.LOW_UTILISATION)
_PERCENT = tuple(pattern(text) for text in speed.PERCENT)
_CPU_BUILD = re.compile(
    r"\bcpu[- ]only\s(?:build|version|wheel|pytorch|torch|install\w*|variant|package|release)|\bcpu\s(?:build|version"
    r"|wheel|variant|edition|nightly)\b(?:\sof\s(?:py)?torch)?|(?:torch|pytorch)\s(?:is\s|was\s)?(?:a\s"
    r"|the\s)?cpu(?:[- ]only)?\s(?:build|version|wheel)"
    r"|(?:torch|pytorch)\S{0,20}\+cpu\b|torch\.version\.cuda\W{1,8}(?:is\s|==?\s?|returns\s|prints\s)?none|cpu\s?版(?:本)?"
    r"|\binstall\w*[^\n]{0,30}\+cpu\b|\bcpuonly\b"
)
_OLD_FAMILY = {"kepler": "3.5", "maxwell": "5.2", "pascal": "6.1", "volta": "7.0", "帕斯卡": "6.1"}


def read(text: Text, draft: Draft) -> None:
    lower = text.lower
    for step in (_starting, _architecture, _installing, _program, _memory):
        step(lower, draft)
    for step in (_speed, _healthy):
        step(text.said, draft)


def _starting(lower: str, draft: Draft) -> None:
    found = _FOUND.search(lower)
    if found:
        number = int(found[1])
        cuda = f"{number // 1000}.{number % 1000 // 10}"
        draft.symptom("driver-too-old", found=cuda)
        draft.put("driver.cuda", cuda, Rank.SAID)
    if draft.has("nvml-version-mismatch"):
        draft.symptom("nvml-version-mismatch", library=draft.notes.get("nvml"))
        draft.put("driver.nvml_error", "nvml-version-mismatch", Rank.PRINTED)
        draft.put("driver.smi", "failed", Rank.PRINTED)
    if draft.has("nvml-unknown-error"):
        draft.put("driver.nvml_error", "nvml-error", Rank.SAID)
    if draft.has("smi-failed"):
        draft.put("driver.smi", "failed", Rank.PRINTED)
    elif draft.has("smi-not-found"):
        draft.put("driver.smi", "not-found", Rank.PRINTED)
    elif re.search(
        r"nvidia-smi\s(?:still\s|itself\s|command\s)?(?:works|shows|sees|lists|runs|is\sfine|reports|detects|output|正常)"
        r"|nvidia-smi[^\n]{0,12}(?:正常|可以)",
        lower,
    ):
        draft.put("driver.smi", "ok", Rank.PROSE)
    if draft.has("cuda-not-available") and re.search(r"is_available[^\n]{0,60}false", lower):
        draft.put("torch.available", False, Rank.SAID)
    runs = [match.group() for match in _DOCKER.finditer(lower)]
    if (runs and not any(_ASKS_GPU.search(run) for run in runs)) or _FLAGLESS.search(lower):
        draft.symptom("docker-run-without-gpus")


def _architecture(lower: str, draft: Draft) -> None:
    match = _NOT_COMPATIBLE.search(lower) if "sm_" in lower or "capability" in lower else None
    before = lower[max(0, match.start() - 70) : match.start()].rpartition("\n")[2] if match else ""
    if match and _EXTENSION.search(before + match.group()):
        match = None  # not torch's complaint, or not about torch
    supported = _SUPPORTED.search(lower)
    run = supported or max(_RUN.finditer(lower), key=lambda found: len(found.group()), default=None)
    codes = re.findall(r"sm_\d{2,3}[af]?", run.group()) if run else []
    if match:
        values = [group for group in match.groups() if group]
        digits = [value for value in values if value.isdigit()]
        capability = f"{digits[0]}.{digits[1]}" if len(digits) == 2 else f"{digits[0][:-1]}.{digits[0][-1]}" if digits else None
        named = names.spot(" ".join([before, *(value for value in values if not value.isdigit())]))[-1:]
        own = f"sm_{(capability or '').replace('.', '')}"
        others = codes or [code for code in re.findall(r"sm_\d{2,3}", lower) if code != own]
        if capability and compatibility.serves(others, capability):
            draft.symptom("healthy-remark", what="same-major")
        else:
            draft.symptom(
                "arch-not-compatible", card=named[0].name if named else None, capability=capability, supported=" ".join(codes)
            )
        if capability:
            draft.put("torch.capabilities", [capability], Rank.SAID)
    if supported:
        draft.put("torch.arch_list", codes, Rank.PRINTED)
    if draft.has("old-architecture"):
        family = next((value for name, value in _OLD_FAMILY.items() if name in lower), None)
        number = re.search(r"\bsm_?([3-7]\d)\b|\b(?:cc|capability)\s([3-7])\.(\d)", lower)
        if number:
            family = f"{number[1][0]}.{number[1][1]}" if number[1] else f"{number[2]}.{number[3]}"
        draft.symptom("old-architecture", capability=family)
    if _CPU_BUILD.search(lower) and isinstance(draft.facts.torch.cuda, Missing):
        draft.put("torch.cuda", "none", Rank.SAID)


def _installing(lower: str, draft: Draft) -> None:
    if draft.has("no-matching-distribution"):
        requirement, versions, index, wheel = (p.search(lower) for p in (_REQUIREMENT, _VERSIONS, _INDEX, _WHEEL))
        wanted = "".join(part for part in requirement.groups() if part) if requirement else None
        if wheel and not wanted:
            wanted = f"torch=={wheel[1].replace('%2b', '+')}"
        draft.symptom(
            "no-matching-distribution",
            requirement=wanted,
            versions=versions[1].strip() if versions else None,
            index=next(group for group in index.groups() if group) if index else None,
        )
    dll, so, load = _DLL.search(lower), _SO.search(lower), _LOAD.search(lower)
    if draft.has("dll-not-found"):
        draft.symptom("dll-not-found", library=dll[1] if dll else None)
        draft.put("torch.status", "import-failed", Rank.SAID)
    if draft.has("shared-library-not-found"):
        library = (so or load)[1].rstrip(".") if (so or load) else None  # type: ignore[index]
        draft.symptom("shared-library-not-found", library=library)
        if library:
            draft.add("cuda.missing_libraries", library)
    cudnn = _CUDNN.search(lower)
    if cudnn:
        compiled = ".".join(cudnn.groups()[:3]) if cudnn[1] else cudnn[8]
        draft.symptom(
            "cudnn-version-mismatch", compiled=compiled, found=".".join(cudnn.groups()[3:6]) if cudnn[1] else cudnn[7]
        )
    symbol = _SYMBOL.search(lower)
    if symbol:
        draft.symptom("undefined-symbol", library=symbol[1] or symbol[2] or symbol[3])


def _program(lower: str, draft: Draft) -> None:
    if draft.has("invalid-device-ordinal"):
        match = _ORDINAL.search(lower)
        number = next((group for group in match.groups() if group), None) if match else None
        number = draft.notes.get("ordinal", number)
        draft.symptom("invalid-device-ordinal", ordinal=int(number) if number else None)
    count = _COUNT_IS.search(lower)
    shown, expected = _SHOWN.search(lower), _EXPECTED.search(lower)
    many = (_NUMBERS.get(expected[1]) or int(expected[1])) if expected else None
    if count:
        draft.put("torch.device_count", int(count[1]), Rank.SAID)
        if many is not None and int(count[1]) < many:
            draft.symptom("device-count-wrong", shown=int(count[1]), expected=many)
    elif shown:
        value = next(group for group in shown.groups() if group)
        draft.symptom("device-count-wrong", shown=_NUMBERS.get(value) or int(value), expected=many)
    if draft.has("device-mismatch"):
        devices, types = _DEVICES.search(lower), _TYPES.search(lower)
        first, second = (devices[1], devices[2]) if devices else (None, None)
        if types:
            first, second = ("cuda:0" if types[1] else "cpu"), ("cuda:0" if types[2] else "cpu")
        draft.symptom("device-mismatch", first=first, second=second)
    hip = _HIP.search(lower)
    if hip:
        draft.symptom("hip-error", text=next(group for group in hip.groups() if group).strip())


def _bytes(match: re.Match[str]) -> int:
    groups = [group for group in match.groups() if group]
    return int(float(groups[0]) * _SIZES[groups[1]])


def _memory(lower: str, draft: Draft) -> None:
    if not draft.has("out-of-memory"):
        return
    values: dict[str, int] = {name: _bytes(match) for name, p in _MEMORY.items() if (match := p.search(lower))}
    reserved, unallocated = _RESERVED.search(lower), _UNALLOCATED.search(lower)
    if reserved:
        values["reserved_bytes"] = _bytes(reserved)
    elif unallocated and "allocated_bytes" in values:
        values["reserved_bytes"] = values["allocated_bytes"] + _bytes(unallocated)
    draft.symptom("out-of-memory", **values)
    if re.search(r"cudagetdevicecount[^\n]{0,40}error\s2:\sout\sof\smemory", lower) and not values:
        # What cudaGetDeviceCount calls so is a driver that cannot start, not a full card.
        draft.drop("out-of-memory")


def _speed(lower: str, draft: Draft) -> None:
    percents = [int(match[1]) for p in _PERCENT for match in p.finditer(lower)]
    low = [value for value in percents if value <= 85]
    if low or any(p.search(lower) for p in _LOW):
        draft.symptom("low-utilisation", percent=low[0] if low else None)
    link = _LINK.search(lower)
    if link and draft.has("pcie-narrow"):
        width = link[2] or link[3] or link[5]
        draft.symptom(
            "pcie-narrow",
            width=int(width),
            width_max=int(link[4]) if link[4] else None,
            generation=int(link[1]) if link[1] else None,
        )


def _healthy(lower: str, draft: Draft) -> None:
    """What looks like a fault to somebody and is none; it takes the reports with it that say the same."""
    said = {sentence.code for sentence in speed.HEALTHY if sentence.said_in(lower)}
    narrow = next((symptom for symptom in draft.facts.symptoms if symptom.code == "pcie-narrow"), None)
    if "pcie-idle" in said and (narrow is None or narrow.params.get("width", 16) in (8, 16)):
        draft.symptom("healthy-remark", what="pcie-idle")
        draft.drop("pcie-narrow")
    if "task-manager" in said and not draft.has("cuda-error", "torch-not-compiled-with-cuda", "no-kernel-image"):
        draft.symptom("healthy-remark", what="task-manager")
        draft.drop("low-utilisation")
        if draft.facts.torch.available is not False:
            draft.drop("cuda-not-available")
    if "idle-low-clocks" in said:
        draft.symptom("healthy-remark", what="idle-low-clocks")
        draft.drop("stuck-in-low-clocks")
    if "smi-cuda-differs" in said and len(draft.facts.symptoms) == 0:
        draft.symptom("healthy-remark", what="smi-cuda-differs")
