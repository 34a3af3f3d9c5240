"""PT410 rocm-igpu: HIP takes the processor's integrated graphics beside, or before, the Radeon card."""

from __future__ import annotations

import re

from flatout.doctor import queries
from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.remedy import python_command
from flatout.machine.machine_facts import Facts

MASKS = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")

# Architectures of AMD's integrated graphics (Vega, Raphael, Phoenix, Strix …), and the names it goes by.
INTEGRATED = re.compile(
    r"gfx(902|909|90c|1013|103[3567]|1103|115[0-3])\b|igpu|integrated|radeon\(tm\) graphics|radeon graphics$|"
    r"radeon (610|660|680|740|760|780|880|890)m|raphael|rembrandt|phoenix|cezanne|renoir|granite ridge|strix",
    re.IGNORECASE,
)

# What HIP says when the first device is one that the build has no code for.
NO_CODE = re.compile(
    r"shared object initialization failed|device kernel image is invalid|invalid device function|no kernel image"
    r"|for gpu arch",
    re.I,
)


def check(facts: Facts) -> Finding | None:
    if not _rocm(facts) or any(facts.application.environment.get(name) for name in MASKS):
        return None
    names = _amd_names(facts)
    integrated = [name for name in names if INTEGRATED.search(name)] + _integrated_on_bus(facts)
    error = queries.symptom(facts, "hip-error")
    chosen = queries.symptom(facts, "integrated-gpu-chosen")
    said = str(error.params.get("text", "")) if error else ""
    text = " ".join(part for part in (said, queries.known(facts.torch.kernel), queries.known(facts.torch.error)) if part)
    first = next(iter(queries.known(facts.torch.devices) or []), "")
    taken = bool(INTEGRATED.search(first)) and len(names) > 1
    # Any HIP error where the driver lists both: the integrated one is what such machines have in common.
    fails = bool(NO_CODE.search(text)) or (error is not None and bool(integrated) and len(names) > 1)
    if not chosen and not (integrated and (fails or taken)) and not (error and fails and facts.source == "pasted"):
        return None
    index = _index_of_card(facts)
    return RULE.found(
        *_fix(facts, index),
        severity=Severity.SLOW if taken and not fails and not chosen else Severity.FAULT,
        certain=bool(chosen or integrated),
        integrated=integrated[0] if integrated else None,
        card=next((name for name in names if not INTEGRATED.search(name)), None),
        torch=facts.torch.version,
        hip=facts.torch.hip,
        error=text or None,
        symptom=chosen.code if chosen else None,
    )


def _rocm(facts: Facts) -> bool:
    if queries.known(facts.torch.hip) not in (None, "none") or "rocm" in (queries.known(facts.torch.version) or ""):
        return True
    return queries.symptom(facts, "hip-error", "integrated-gpu-chosen") is not None


def _amd_names(facts: Facts) -> list[str]:
    """As torch numbers them, else as the driver does: names with the architecture, where it is known."""
    named = [f"{gpu.name} {queries.known(gpu.capability) or ''}".strip() for gpu in queries.gpus(facts) if gpu.vendor == "amd"]
    return named or queries.known(facts.torch.devices) or []


def _integrated_on_bus(facts: Facts) -> list[str]:
    devices = [device for device in queries.known(facts.hardware.pci) or [] if device.vendor == "amd"]
    return [queries.known(device.name) or "AMD iGPU" for device in devices if device.kind == "integrated"]


def _index_of_card(facts: Facts) -> int | None:
    names = queries.known(facts.torch.devices) or _amd_names(facts)
    found = [index for index, name in enumerate(names) if not INTEGRATED.search(name)]
    return found[0] if found and len(names) > 1 else None


def _fix(facts: Facts, index: int | None) -> list[Fix]:
    windows = queries.system(facts) == "Windows"
    loop = "[print(i, torch.cuda.get_device_name(i)) for i in range(torch.cuda.device_count())]"
    steps = (
        []
        if index is not None
        else [Fix(command=f'{python_command(facts)} -c "import torch; {loop}"'), Fix(text="take-number")]
    )
    # Unasked, Windows numbers the integrated one first and Linux the card.
    number = index if index is not None else int(windows)
    mask = f"set HIP_VISIBLE_DEVICES={number}" if windows else f"export HIP_VISIBLE_DEVICES={number}"
    return [*steps, Fix(command=mask), Fix(text="firmware")]


RULE = Rule(
    code="PT410",
    name="rocm-igpu",
    layer=Layer.PYTORCH,
    check=check,
    explains=("cuda-start-failed", "torch-import-broken", "arch-not-in-wheel"),
)
