"""Averages and peaks of GPU load over many samples; the samples are not kept."""

from __future__ import annotations

from flatout.base.records import Missing, Struct
from flatout.machine.card_totals import used
from flatout.machine.machine_facts import Gpu

NOT_REPORTED = Missing("not-reported")


class CardLoad(Struct, kw_only=True):
    index: int
    name: str
    looks: int = 0
    utilisation: float | Missing = NOT_REPORTED  # percent, mean
    utilisation_peak: int | Missing = NOT_REPORTED
    used_bytes: float | Missing = NOT_REPORTED  # mean
    used_peak_bytes: int | Missing = NOT_REPORTED
    total_bytes: int | Missing = NOT_REPORTED
    temperature_peak_c: int | Missing = NOT_REPORTED


class Load:
    def __init__(self) -> None:
        self._cards: dict[int, CardLoad] = {}
        self._counts: dict[tuple[int, str], int] = {}

    def add(self, gpus: list[Gpu]) -> None:
        for gpu in gpus:
            card = self._cards.setdefault(gpu.index, CardLoad(index=gpu.index, name=gpu.name))
            card.looks += 1
            card.total_bytes = gpu.memory_total_bytes
            card.utilisation = self._mean(gpu.index, "utilisation", card.utilisation, gpu.utilisation)
            card.utilisation_peak = _peak(card.utilisation_peak, gpu.utilisation)
            card.used_bytes = self._mean(gpu.index, "used", card.used_bytes, used(gpu))
            card.used_peak_bytes = _peak(card.used_peak_bytes, used(gpu))
            card.temperature_peak_c = _peak(card.temperature_peak_c, gpu.temperature_c)

    def cards(self) -> list[CardLoad]:
        return list(self._cards.values())

    def _mean(self, index: int, name: str, before: float | Missing, now: float | Missing) -> float | Missing:
        """A look that did not tell does not count."""
        if isinstance(now, Missing):
            return before
        count = self._counts[index, name] = self._counts.get((index, name), 0) + 1
        return float(now) if isinstance(before, Missing) else before + (now - before) / count


def _peak(before: int | Missing, now: int | Missing) -> int | Missing:
    if isinstance(before, Missing) or isinstance(now, Missing):
        return now if isinstance(before, Missing) else before
    return max(before, now)
