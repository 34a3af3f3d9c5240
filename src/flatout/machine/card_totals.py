"""Totals over many GPU samples; the samples are not kept, so long runs need no more memory than short ones."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.machine.machine_facts import Gpu
from flatout.machine.run_look import GpuDuring

# Clock events that hold a working card back; `data/drivers.toml` names them all. GPU_IDLE and settings of the user do not.
SLOWDOWNS = frozenset({"HW_SLOWDOWN", "SW_THERMAL_SLOWDOWN", "HW_THERMAL_SLOWDOWN", "HW_POWER_BRAKE_SLOWDOWN"})

# The power limit is met at every full load, and sync boost waits for a neighbour: worth counting, no fault.
HOLDS_BACK = SLOWDOWNS | {"SW_POWER_CAP", "SYNC_BOOST"}


class Tally:
    def __init__(self) -> None:
        self._cards: dict[int, GpuDuring] = {}
        self._clocks: dict[int, int] = {}  # sum at work

    def add(self, gpus: list[Gpu]) -> None:
        for gpu in gpus:
            card = self._cards.setdefault(gpu.index, GpuDuring(index=gpu.index, name=gpu.name, uuid=gpu.uuid))
            card.samples += 1
            card.temperature_max_c = _larger(card.temperature_max_c, gpu.temperature_c)
            card.used_max_bytes = _larger(card.used_max_bytes, used(gpu))
            card.sm_clock_max_mhz = _larger(card.sm_clock_max_mhz, gpu.sm_clock_max_mhz)
            if works(gpu):
                self._at_work(card, gpu)

    def _at_work(self, card: GpuDuring, gpu: Gpu) -> None:
        card.working += 1
        held = HOLDS_BACK & set([] if isinstance(gpu.clock_events, Missing) else gpu.clock_events)
        for reason in held:
            card.held_back[reason] = card.held_back.get(reason, 0) + 1
        if isinstance(gpu.sm_clock_mhz, Missing):
            return
        clocks = self._clocks[gpu.index] = self._clocks.get(gpu.index, 0) + gpu.sm_clock_mhz
        card.sm_clock_mhz = clocks / card.working
        lowest = card.sm_clock_held_mhz
        if held & SLOWDOWNS and (isinstance(lowest, Missing) or gpu.sm_clock_mhz < lowest):
            card.sm_clock_held_mhz = gpu.sm_clock_mhz

    def cards(self) -> list[GpuDuring]:
        return list(self._cards.values())


def works(gpu: Gpu) -> bool:
    idle = not isinstance(gpu.clock_events, Missing) and "GPU_IDLE" in gpu.clock_events
    return not idle and isinstance(gpu.utilisation, int) and gpu.utilisation > 0


def used(gpu: Gpu) -> int | Missing:
    total, free = gpu.memory_total_bytes, gpu.memory_free_bytes
    if isinstance(total, Missing) or isinstance(free, Missing):
        return Missing("not-reported")
    return total - free


def _larger(one: int | Missing, other: int | Missing) -> int | Missing:
    if isinstance(one, Missing) or isinstance(other, Missing):
        return other if isinstance(one, Missing) else one
    return max(one, other)
