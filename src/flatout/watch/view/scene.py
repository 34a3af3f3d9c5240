"""What panels are drawn from, and how a figure is written where it may be missing. Pure."""

from __future__ import annotations

from collections.abc import Callable

from flatout.base.records import Missing, Struct
from flatout.base.words import Words
from flatout.report.numbers import count, gibibytes, seconds
from flatout.watch.lines import NOTHING
from flatout.watch.view.picture import CardView, Picture
from flatout.watch.view.rows import Piece, piece
from flatout.watch.view.traces import Traces

LENGTHS_S = (120.0, 600.0, 3600.0, 43200.0)  # of the plots' time axis

SHOWN: dict[str, Callable[[float], str]] = {
    "utilisation": lambda value: f"{value:.0f} %",
    "memory_used_bytes": gibibytes,
    "temperature_c": lambda value: f"{value:.0f} °C",
    "power_w": lambda value: f"{value:.0f} W",
    "sm_clock_mhz": lambda value: f"{value:.0f} MHz",
    "cpu_percent": lambda value: f"{value:.0f} %",
    "disk_read_bytes_s": lambda value: rate(value),
    "net_received_bytes_s": lambda value: rate(value),
    "step_s": seconds,
    "samples_per_s": count,
    "input_share": lambda value: f"{value:.0f} %",
    "loss": lambda value: f"{value:.4g}",
}


class Scene(Struct, frozen=True, kw_only=True):
    picture: Picture
    traces: Traces
    words: Words
    selected: int = 0  # of the cards, by their place
    length_s: float = LENGTHS_S[0]
    mono: bool = False  # no colours: what differs must differ in its characters
    paused: bool = False
    replayed: bool = False
    pace: float = 1.0  # of a replay
    host_name: str = ""

    @property
    def card(self) -> CardView | None:
        cards = self.picture.cards
        return cards[min(self.selected, len(cards) - 1)] if cards else None


def figure(scene: Scene, value: float | Missing, shown: Callable[[float], str], style: str = "value") -> Piece:
    """– where it is not given, with the reason for whoever points at it. Never 0."""
    if isinstance(value, Missing):
        return Piece(NOTHING, "dim", reason(scene.words, value), "reasons")
    return Piece(shown(value), style)


def reason(words: Words, value: Missing) -> str:
    return words("screen.not-shown", why=words(f"missing.{value.reason}"))


def label(scene: Scene, key: str) -> Piece:
    return Piece(scene.words(f"screen.{key}"), "label")


def rate(value: float) -> str:
    for factor, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f} B/s"


def named(name: str | int | Missing) -> str:
    return NOTHING if isinstance(name, Missing) else str(name)


def blank(cells: int = 1) -> Piece:
    return Piece(" " * cells)


def outside(text: str, style: str = "value", tip: str = "", action: str = "") -> Piece:
    return piece(text, style, tip, action)
