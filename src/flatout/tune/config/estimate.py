"""Values from what a machine is, without a measurement: pure, and every one of them with its reason.

A preset is no table of values: it is how much of the machine a training may take, and the card's facts decide the rest.
"""

from __future__ import annotations

from flatout.base.errors import UsageError
from flatout.base.records import Missing, Struct
from flatout.machine import worker_estimate
from flatout.machine.versions import parse
from flatout.tune.config.wishes import Ground, Wish
from flatout.tune.search.questions_and_answers import Params

GIB = 1 << 30

HEADROOM = 0.08  # of the card's memory; as the search for a batch leaves free
HEADROOM_WINDOWS = 0.16  # it spills into shared memory instead of failing
WORKER_BYTES = int(1.5 * GIB)  # of host memory, with a copy of the data set's own objects

BF16_FROM = (8, 0)
FP16_FROM = (7, 0)
TRITON_FROM = (7, 0)


class Preset(Struct, frozen=True, kw_only=True):
    """How much of the machine."""

    cores: float  # share of the cores beside the training's own …
    workers: int = 1  # … up to so many times the most that the usual estimate gives
    prefetch: int  # batches that wait for each worker's turn
    headroom: float  # times the usual
    compile: bool  # where it works; whether it pays only a measurement tells


PRESETS = {
    "high_performance": Preset(cores=1.0, workers=2, prefetch=4, headroom=1.0, compile=True),
    "balanced": Preset(cores=worker_estimate.USUAL_SHARE, prefetch=2, headroom=1.0, compile=False),
    "lightweight": Preset(cores=1 / 3, prefetch=2, headroom=2.0, compile=False),
}
USUAL = "balanced"

LEFT_TO_MEASURING = {
    "batch_size": "batch-by-measuring",
    "base_channels": "model-by-exploring",
    "num_blocks": "model-by-exploring",
    "patch_size": "model-by-exploring",
    "use_perceptual": "model-by-exploring",
}


class MachineFacts(Struct, frozen=True, kw_only=True):
    """What the estimates are made of; the card's part is empty without one."""

    card: str = ""
    source: str = "none"  # nvml, table, none
    missing: str = ""
    capability: str | Missing = Missing("unknown")
    memory_bytes: int | Missing = Missing("unknown")
    tensor_cores: bool | None = None
    cores: float = 1.0
    host_bytes: int | Missing = Missing("unknown")  # free, a container's limit taken into account
    system: str = "Linux"
    triton: bool | None = None  # None: nobody looked


def preset_of(name: str) -> Preset:
    if name not in PRESETS:
        raise UsageError("config-error.preset", name=name, known=", ".join(PRESETS))
    return PRESETS[name]


def wishes(facts: MachineFacts, name: str = USUAL) -> list[Wish]:
    preset = preset_of(name)
    return [
        *_device(facts),
        _precision(facts),
        _compile(facts, preset, name),
        *_loading(facts, preset),
        *(Wish(key=key, value=None, code=code) for key, code in LEFT_TO_MEASURING.items()),
    ]


def ground(facts: MachineFacts, name: str = USUAL) -> Ground:
    share = (HEADROOM_WINDOWS if facts.system == "Windows" else HEADROOM) * preset_of(name).headroom
    memory = 0.0 if isinstance(facts.memory_bytes, Missing) else facts.memory_bytes / GIB
    return Ground(
        card=facts.card,
        source=facts.source,
        missing=facts.missing,
        capability=facts.capability if isinstance(facts.capability, str) else "",
        memory_gib=round(memory, 1),
        memory_usable_gib=round(memory * (1 - share), 1),
        preset=name,
    )


def _device(facts: MachineFacts) -> list[Wish]:
    return [Wish(key="use_gpu", value=True, code="card-is-there", params={"card": facts.card})] if facts.card else []


def _precision(facts: MachineFacts) -> Wish:
    if isinstance(facts.capability, Missing):
        return Wish(key="use_amp", value=None, code="no-card")
    params: Params = {"card": facts.card, "capability": facts.capability}
    number = parse(facts.capability)
    if number >= BF16_FROM:
        return Wish(key="use_amp", value="bf16", code="bf16-from-8", params=params)
    if number >= FP16_FROM and facts.tensor_cores is not False:
        return Wish(key="use_amp", value="fp16", code="fp16-on-7", params=params)
    return Wish(key="use_amp", value="no", code="no-tensor-cores", params=params)


def _compile(facts: MachineFacts, preset: Preset, name: str) -> Wish:
    if isinstance(facts.capability, Missing):
        return Wish(key="compile_model", value=None, code="no-card")
    params: Params = {"card": facts.card, "capability": facts.capability}
    if parse(facts.capability) < TRITON_FROM:
        return Wish(key="compile_model", value=False, code="card-too-old-to-compile", params=params)
    if facts.triton is False or (facts.triton is None and facts.system == "Windows"):
        return Wish(key="compile_model", value=False, code="no-triton")
    if not preset.compile:
        return Wish(key="compile_model", value=None, code="compile-by-measuring")
    return Wish(key="compile_model", value="default", code="compile-works", params={"preset": name})


def _loading(facts: MachineFacts, preset: Preset) -> list[Wish]:
    count, code = workers(facts, preset)
    params: Params = {"cores": round(facts.cores, 1), "workers": count}
    found = [Wish(key="num_workers", value=count or None, code=code, params=params)]
    if facts.card:
        found.append(Wish(key="pin_memory", value=True, code="pinned-copies"))
    if count:
        found.append(Wish(key="persistent_workers", value=True, code="workers-stay"))
        found.append(Wish(key="prefetch_factor", value=preset.prefetch, code="prefetch", params={"count": preset.prefetch}))
    return found


def workers(facts: MachineFacts, preset: Preset) -> tuple[int, str]:
    """How many, and what set the limit. None on a single core, which the training needs itself."""
    if facts.cores < 2:
        return 0, "one-core"
    limits = [(worker_estimate.by_cores(facts.cores, share=preset.cores), "by-cores")]
    if not isinstance(facts.host_bytes, Missing):
        limits.append((max(1, facts.host_bytes // WORKER_BYTES), "by-host-memory"))
    most = preset.workers * worker_estimate.most(facts.system)
    limits.append((most, "by-windows" if facts.system == "Windows" else "by-most"))
    return min(limits, key=lambda limit: limit[0])
