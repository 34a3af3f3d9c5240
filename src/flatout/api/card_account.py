"""Averages and extremes of GPU samples (no samples are kept), and which GPU a torch device is."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from flatout.api.performance import Spread
from flatout.base.records import Missing
from flatout.machine import visible
from flatout.machine.card_totals import used
from flatout.machine.machine_facts import Gpu

FIGURES = ("utilisation", "power_draw_w", "temperature_c", "used")


class _Figure:
    __slots__ = ("high", "looks", "low", "total")

    def __init__(self) -> None:
        self.total, self.low, self.high, self.looks = 0.0, float("inf"), float("-inf"), 0

    def add(self, value: float) -> None:
        self.total += value
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.looks += 1


class CardAccounts:
    """By card and figure: mean, lowest, highest. Written by the watcher's thread alone, read by any other."""

    def __init__(self) -> None:
        self._figures: dict[tuple[int, str], _Figure] = {}
        self._silent: dict[tuple[int, str], Missing] = {}
        self.last: list[Gpu] = []

    def add(self, gpus: list[Gpu]) -> None:
        self.last = gpus
        for gpu in gpus:
            for name in FIGURES:
                value = used(gpu) if name == "used" else getattr(gpu, name)
                if isinstance(value, Missing):
                    self._silent[gpu.index, name] = value
                else:
                    self._figures.setdefault((gpu.index, name), _Figure()).add(value)

    def forget(self) -> None:
        """From here on anew: what came before was warm-up."""
        self._figures, self._silent = {}, {}

    def spread(self, index: int, name: str) -> Spread | Missing:
        figure = self._figures.get((index, name))
        if figure is None:
            return self._silent.get((index, name), Missing("no-looks"))
        return Spread(figure.total / figure.looks, figure.low, figure.high, figure.looks)


def card_of(gpus: Sequence[Gpu], place: int, torch: Any = None, environment: Mapping[str, str] | None = None) -> Gpu | None:
    """The card that torch calls `cuda:place`. By its UUID where CUDA has started, because CUDA may count in another order than
    the driver; else by what CUDA_VISIBLE_DEVICES leaves."""
    uuid = _uuid(torch, place)
    if uuid is not None:
        return next((gpu for gpu in gpus if isinstance(gpu.uuid, str) and uuid in gpu.uuid), None)
    environment = os.environ if environment is None else environment
    seen = visible.resolve(environment.get(visible.CUDA), visible.slots(gpus, "nvidia"))
    if place >= len(seen.cards):
        return None
    return next((gpu for gpu in gpus if gpu.index == seen.cards[place]), None)


def _uuid(torch: Any, place: int) -> str | None:
    # Not before CUDA has started: to ask would start it, and take memory from a program that may never use it.
    if torch is None or not torch.cuda.is_initialized():
        return None
    if place >= torch.cuda.device_count():
        return None
    found = getattr(torch.cuda.get_device_properties(place), "uuid", None)
    return None if found is None else str(found)
