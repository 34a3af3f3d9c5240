"""Environment variables, as shells of both kinds, containers and Python set them."""

from __future__ import annotations

import re

from flatout.doctor.paste.clean import Text
from flatout.doctor.paste.draft import Draft, Rank

# Those that decide what CUDA, ROCm, the linker or the allocator do.
NAMES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HSA_OVERRIDE_GFX_VERSION",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MPS_PIPE_DIRECTORY",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "TORCH_CUDA_ARCH_LIST",
    "OMP_NUM_THREADS",
    "LOCAL_RANK",
    "WSL_DISTRO_NAME",
)
_ASSIGNED = re.compile(
    r"(?:\benviron\[[\"']|\$env:|\bset |\bexport |-e |--env[= ])?[\"']?\b("
    + "|".join(NAMES)
    + r")\b[\"']?\]?\s*(?:=|:| set to:?)\s*"
    r"(\"[^\"\n]{0,400}\"|'[^'\n]{0,400}'|[^\s\"';,)]+(?:,\s?\d+)*|(?=\s|$))"
)
_UNSET = ("unset", "none", "null", "not", "n/a", "no", "nan", "lazy")
_ADVICE = re.compile(r"(?:try|consider|recommend\w*|suggest\w*)(?: \w+)? $", re.I)
_LATE = re.compile(r"set too late|after (?:init|import|cuda)|too late", re.I)


def read(text: Text, draft: Draft) -> None:
    for number, line in enumerate(text.lines):
        for match in _ASSIGNED.finditer(line):
            if _ADVICE.search(line[max(0, match.start() - 60) : match.start()]):
                continue  # torch's own: "try setting …"
            value = match[2].strip("\"'")
            rest = line[match.end() :].strip()
            if not value and not rest and match[1] == "LD_LIBRARY_PATH" and number + 1 < len(text.lines):
                value = text.lines[number + 1].strip()
            if match[1] == "CUDA_VISIBLE_DEVICES" and _LATE.search(line[match.start() : match.start() + 400]):
                visible_field(draft, "set too late", Rank.SAID)
            elif value.lower() not in _UNSET and not value.startswith(("<", "$", "os.", "str(", "args.")):
                put(draft, match[1], value)


def put(draft: Draft, name: str, value: str) -> None:
    """The first that is said stays: later ones are usually what was tried against it."""
    draft.facts.application.environment.setdefault(name, value[:2000])
    if name == "WSL_DISTRO_NAME":
        draft.put("system.wsl", True, Rank.PRINTED)


def visible_field(draft: Draft, value: str, rank: Rank) -> None:
    """`cuda_visible_devices` in words: a list of devices, or when it was set."""
    if _LATE.search(value):
        draft.symptom("visible-devices-ignored")
    elif re.fullmatch(r"-?\d+(?:\s?,\s?-?\d+)*|(?:GPU|MIG)-[\w/,-]+|", value):
        put(draft, "CUDA_VISIBLE_DEVICES", value.replace(" ", ""))
