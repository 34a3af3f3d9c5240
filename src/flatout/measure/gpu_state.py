"""The cards before, during and after a run, compared."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.machine.card_totals import HOLDS_BACK, used
from flatout.machine.machine_facts import Gpu, GpuProcess
from flatout.machine.run_look import DeviceLook, GpuChange, GpuDuring

# A CUDA context alone takes more; less is the desktop's coming and going.
CONTEXT_BYTES = 150 << 20


def compare(before: list[Gpu], after: list[Gpu] | Missing, during: list[GpuDuring], device: DeviceLook) -> list[GpuChange]:
    """One entry for each card that both looks saw: a card that fell off the bus meanwhile is the doctor's business."""
    late = {} if isinstance(after, Missing) else {_key(gpu): gpu for gpu in after}
    watched = {card.index: card for card in during}
    pairs = [(gpu, late[_key(gpu)]) for gpu in before if _key(gpu) in late]
    return [_change(first, last, watched.get(first.index), device, alone=len(pairs) == 1) for first, last in pairs]


def _key(gpu: Gpu) -> str | int:
    return gpu.index if isinstance(gpu.uuid, Missing) else gpu.uuid


def _change(before: Gpu, after: Gpu, during: GpuDuring | None, device: DeviceLook, alone: bool) -> GpuChange:
    return GpuChange(
        index=before.index,
        name=before.name,
        used=_was_used(before, during) or (alone and _on_cuda(device)),
        used_before_bytes=used(before),
        used_after_bytes=used(after),
        temperature_before_c=before.temperature_c,
        temperature_after_c=after.temperature_c,
        sm_clock_before_mhz=before.sm_clock_mhz,
        sm_clock_after_mhz=after.sm_clock_mhz,
        held_before=_held(before),
        held_after=_held(after),
        others_before=_programs(before),
        others_after=_programs(after),  # the script has ended: whoever is there now is somebody else, or was left behind
        during=during,
    )


def _was_used(before: Gpu, during: GpuDuring | None) -> bool:
    """By this run, as far as the memory tells: processes of a container are not named to it."""
    first = used(before)
    if during is None or isinstance(first, Missing) or isinstance(during.used_max_bytes, Missing):
        return False
    return during.used_max_bytes - first >= CONTEXT_BYTES


def _on_cuda(device: DeviceLook) -> bool:
    regime = device.regime
    return regime is not None and isinstance(regime.device, str) and regime.device.startswith("cuda")


def _held(gpu: Gpu) -> list[str]:
    return [] if isinstance(gpu.clock_events, Missing) else [name for name in gpu.clock_events if name in HOLDS_BACK]


def _programs(gpu: Gpu) -> list[str]:
    listed: list[GpuProcess] = [] if isinstance(gpu.processes, Missing) else gpu.processes
    return [f"{'?' if isinstance(one.name, Missing) else one.name} ({one.pid})" for one in listed]
