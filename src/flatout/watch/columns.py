"""How the history stores a sample: numbers as small integers, the rest only when it changes.

A figure is rounded to what its sensor can tell apart (a percent, a tenth of a watt, a MiB): SQLite stores small integers in one
to three bytes, and a day of eight cards fits into megabytes. What hardly changes (limits, sizes, names, who is on the card, why
a figure is missing) is written when it changes, not every second.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flatout.base.records import Missing, Struct, dump
from flatout.data import table
from flatout.machine.card_totals import SLOWDOWNS
from flatout.machine.telemetry import CardSample, HostSample

MIB = 1 / (1 << 20)
KIB = 1 / (1 << 10)


class Column(Struct, frozen=True):
    name: str
    scale: float = 1.0  # stored = round(value * scale); 0 for a figure without natural grains, which is stored as it is
    bits: bool = False  # a set of flags: joined where others are averaged


class Kind(Struct, frozen=True, kw_only=True):
    """A table's worth of things: cards, the host, runs."""

    name: str
    columns: tuple[Column, ...]
    constants: tuple[str, ...] = ()


CARD = Kind(
    name="card",
    columns=(
        Column("utilisation"),
        Column("memory_busy"),
        Column("memory_used_bytes", MIB),
        Column("temperature_c"),
        Column("power_w", 10),
        Column("sm_clock_mhz"),
        Column("memory_clock_mhz"),
        Column("fan_percent"),
        Column("link_received_bytes_s", KIB),
        Column("link_sent_bytes_s", KIB),
        Column("encoder_percent"),
        Column("decoder_percent"),
        Column("held_bits", bits=True),
        Column("held_back", 1000),  # 1 while heat or the power supply holds it back: its mean is the share of the time
        Column("ecc_uncorrected"),
    ),
    constants=(
        "name",
        "memory_total_bytes",
        "temperature_limit_c",
        "power_limit_w",
        "sm_clock_max_mhz",
        "memory_clock_max_mhz",
        "link_generation",
        "link_width",
        "rows_remapped",
        "remap_pending",
        "remap_failed",
        "holders",
    ),
)
HOST = Kind(
    name="host",
    columns=(
        Column("cpu_percent", 10),
        Column("busiest_core_percent"),
        Column("memory_used_bytes", MIB),
        Column("swap_used_bytes", MIB),
        Column("swap_in_bytes_s", KIB),
        Column("swap_out_bytes_s", KIB),
        Column("shm_used_bytes", MIB),
        Column("disk_read_bytes_s", KIB),
        Column("disk_written_bytes_s", KIB),
        Column("net_received_bytes_s", KIB),
        Column("net_sent_bytes_s", KIB),
        Column("io_stalled", 1000),
    ),
    constants=("memory_total_bytes", "swap_total_bytes", "shm_total_bytes", "cores"),
)
SHARES = (
    "input",
    "copy",
    "forward",
    "backward",
    "optimizer",
    "device_wait",
    "compile",
    "turn",
    "validation",
    "checkpoint",
    "script",
)
RUN = Kind(
    name="run",
    columns=(
        Column("steps"),
        Column("step_s", 1e6),
        Column("samples_per_s", 10),
        Column("epoch", 100),
        Column("loss", 0),
        Column("reserved_bytes", MIB),
        Column("retries"),
        *(Column(f"share_{name}", 1000) for name in SHARES),
    ),
    constants=("ended",),
)
KINDS = (CARD, HOST, RUN)

Values = dict[str, Any]


def of_card(card: CardSample) -> Values:
    values: Values = {name: getattr(card, name) for name in card.__struct_fields__}
    held = card.held_by
    values["held_bits"] = held if isinstance(held, Missing) else bits_of(held)
    values["held_back"] = held if isinstance(held, Missing) else float(holds_back(card))
    values["holders"] = _holders(card)
    return values


def of_host(host: HostSample) -> Values:
    values: Values = {name: getattr(host, name) for name in host.__struct_fields__}
    cores = host.core_percent
    values["busiest_core_percent"] = cores if isinstance(cores, Missing) else max(cores, default=0.0)
    values["cores"] = cores if isinstance(cores, Missing) else len(cores)
    return values


def holds_back(card: CardSample) -> bool:
    """Heat or the power supply lowers the clocks of a card that has work; its power limit is met at every full load."""
    return card.idle is not True and not isinstance(card.held_by, Missing) and bool(SLOWDOWNS & set(card.held_by))


def bits_of(names: Iterable[str]) -> int:
    known = {row["name"]: row["mask"] for row in table("drivers")["clock_event"]}
    return sum(known.get(name, 0) for name in set(names))


def names_of(bits: int) -> tuple[str, ...]:
    return tuple(row["name"] for row in table("drivers")["clock_event"] if bits & row["mask"])


def _holders(card: CardSample) -> Any:
    """Who is on the card, in steps of 64 MiB: a list that changed every second would fill the history."""
    if isinstance(card.processes, Missing):
        return card.processes
    grains = 64 << 20
    return [
        [dump(one.pid), dump(one.name), one.memory_bytes // grains * grains if isinstance(one.memory_bytes, int) else None]
        for one in sorted(card.processes, key=lambda one: str(one.pid))
    ]
