"""A card's load in words: one line for a look, a few for all of them."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.machine.card_load import CardLoad
from flatout.machine.card_totals import used
from flatout.machine.machine_facts import Gpu
from flatout.report.numbers import gibibytes, percent

GOOD = 80.0  # percent of the time with a kernel on the card


def look(gpu: Gpu, words: Words) -> str:
    return words(
        "load.look",
        index=gpu.index,
        utilisation=_percent(gpu.utilisation),
        share=_share(used(gpu), gpu.memory_total_bytes),
        used=_size(used(gpu)),
        temperature=_number(gpu.temperature_c),
    )


def summary(card: CardLoad, words: Words) -> list[str]:
    lines = [
        words("load.of", index=card.index, name=card.name, looks=card.looks),
        words("load.utilisation", mean=_percent(card.utilisation), peak=_percent(card.utilisation_peak)),
        words(
            "load.memory",
            mean=_share(card.used_bytes, card.total_bytes),
            peak=_size(card.used_peak_bytes),
            temperature=_number(card.temperature_peak_c),
        ),
    ]
    if isinstance(card.utilisation, float):
        lines.append(words("load.busy" if card.utilisation >= GOOD else "load.idle"))
    return lines


def _percent(value: float | Missing) -> str:
    return "?" if isinstance(value, Missing) else f"{value:.0f} %"


def _share(value: float | Missing, total: int | Missing) -> str:
    return "?" if isinstance(value, Missing) or isinstance(total, Missing) or not total else percent(value / total)


def _size(value: float | Missing) -> str:
    return "?" if isinstance(value, Missing) else gibibytes(value)


def _number(value: float | Missing) -> str:
    return "?" if isinstance(value, Missing) else f"{value:.0f}"
