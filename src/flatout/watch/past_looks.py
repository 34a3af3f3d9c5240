"""What the history holds of some hours: looks at cards and host, as they were, with a reason for all that is not kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from flatout.base.records import replace
from flatout.machine.telemetry import CardSample, HostSample, Sample
from flatout.watch import place, reading, tables
from flatout.watch.columns import CARD, HOST, Kind, names_of
from flatout.watch.reading import NOT_KEPT, Reader

OF_CARDS = (
    "utilisation",
    "memory_busy",
    "memory_used_bytes",
    "temperature_c",
    "power_w",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "held_bits",
)
CONSTANTS = ("name", "memory_total_bytes", "temperature_limit_c", "power_limit_w", "sm_clock_max_mhz", "memory_clock_max_mhz")
OF_THE_HOST = (
    "cpu_percent", "memory_used_bytes", "swap_used_bytes", "swap_in_bytes_s", "swap_out_bytes_s", "shm_used_bytes",
    "disk_read_bytes_s", "disk_written_bytes_s", "net_received_bytes_s", "net_sent_bytes_s", "io_stalled",
)  # fmt: skip
HOST_CONSTANTS = ("memory_total_bytes", "swap_total_bytes", "shm_total_bytes")
NEITHER_PERCENT_NOR_FLOAT = frozenset({"power_w", "cpu_percent", "io_stalled"})

Table = dict[float, dict[str, Any]]


def looks(environ: Mapping[str, str], start: float, end: float) -> list[Sample]:
    """In the order of time; none where nothing was watched then, or the history cannot be read."""
    file = place.choose(environ).file
    if file is None or not file.exists():
        return []
    try:
        return _read(reading.open_reader(file), start, end)
    except (sqlite3.Error, tables.NotOursError, OSError, ValueError):
        return []


def _read(reader: Reader, start: float, end: float) -> list[Sample]:
    hosts = _table(reader, HOST, "host", OF_THE_HOST, start, end)
    cards = {name: _table(reader, CARD, name, OF_CARDS, start, end) for name in reader.names(CARD)}
    cards = {name: rows for name, rows in cards.items() if rows}
    fixed = {name: {key: reader.constant(CARD, name, key, end) for key in CONSTANTS} for name in cards}
    fixed_host = {key: reader.constant(HOST, "host", key, end) for key in HOST_CONSTANTS}
    times = sorted({*hosts, *(t for rows in cards.values() for t in rows)})
    found = []
    for t in times:
        here = [_card(index, name, fixed[name], rows[t]) for index, (name, rows) in enumerate(cards.items()) if t in rows]
        host = _filled(HostSample, {**fixed_host, **hosts.get(t, {})})
        found.append(Sample(t=t, cards=tuple(here) if here else NOT_KEPT, host=host))
    return found


def _table(reader: Reader, kind: Kind, name: str, columns: tuple[str, ...], start: float, end: float) -> Table:
    """By moments: what each column was."""
    found: Table = {}
    for column in columns:
        for point in reader.points(kind, name, column, start, end):
            found.setdefault(point.t, {})[column] = point.mean
    return found


def _card(index: int, name: str, fixed: Mapping[str, Any], values: Mapping[str, Any]) -> CardSample:
    shown = {
        key: value if key in NEITHER_PERCENT_NOR_FLOAT else round(value) for key, value in values.items() if key != "held_bits"
    }
    card: CardSample = _filled(CardSample, {"index": index, "uuid": name, **fixed, **shown})
    bits = values.get("held_bits")
    if bits is None:
        return card
    held = names_of(int(bits))
    return replace(card, held_by=tuple(one for one in held if one != "GPU_IDLE"), idle="GPU_IDLE" in held)


def _filled(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """What the history does not hold says so, instead of "not reported"."""
    return kind(**{**{name: NOT_KEPT for name in kind.__struct_fields__ if name != "index"}, **values})
