"""Means and extremes of samples; the samples are not kept, so a day needs no more memory than a minute. Pure."""

from __future__ import annotations

from flatout.base.records import Missing, Struct, field
from flatout.machine.telemetry import CardSample, HostSample, Sample

OF_CARDS = ("utilisation", "memory_used_bytes", "temperature_c", "power_w", "sm_clock_mhz")
OF_THE_HOST = ("cpu_percent", "memory_used_bytes", "swap_in_bytes_s", "io_stalled", "disk_read_bytes_s")


class Mean(Struct, kw_only=True):
    """`why` holds where no look gave a figure."""

    looks: int = 0
    mean: float = 0.0
    low: float = 0.0
    high: float = 0.0
    why: Missing | None = None

    def add(self, value: float | Missing) -> None:
        if isinstance(value, Missing):
            self.why = value if not self.looks else None
            return
        self.low = value if not self.looks else min(self.low, value)
        self.high = value if not self.looks else max(self.high, value)
        self.looks += 1
        self.mean += (value - self.mean) / self.looks
        self.why = None


class CardMeans(Struct, kw_only=True):
    index: int
    name: str | Missing
    uuid: str | Missing
    memory_total_bytes: int | Missing
    power_limit_w: float | Missing
    looks: int = 0
    figures: dict[str, Mean] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)  # reason -> looks at which it worked and was held back


class Means(Struct, kw_only=True):
    looks: int = 0
    cards: list[CardMeans] = field(default_factory=list)
    no_cards: Missing | None = None
    host: dict[str, Mean] = field(default_factory=dict)

    def add(self, sample: Sample) -> None:
        self.looks += 1
        self._add_host(sample.host)
        if isinstance(sample.cards, Missing):
            self.no_cards = sample.cards if not self.cards else None
            return
        for card in sample.cards:
            self._add_card(card)

    def _add_host(self, host: HostSample) -> None:
        for name in OF_THE_HOST:
            self.host.setdefault(name, Mean()).add(getattr(host, name))

    def _add_card(self, card: CardSample) -> None:
        means = next((one for one in self.cards if one.index == card.index and one.uuid == card.uuid), None)
        if means is None:
            means = CardMeans(
                index=card.index,
                name=card.name,
                uuid=card.uuid,
                memory_total_bytes=card.memory_total_bytes,
                power_limit_w=card.power_limit_w,
            )
            self.cards.append(means)
        means.looks += 1
        for name in OF_CARDS:
            means.figures.setdefault(name, Mean()).add(getattr(card, name))
        if card.idle is not True and not isinstance(card.held_by, Missing):
            for reason in card.held_by:
                means.held[reason] = means.held.get(reason, 0) + 1
