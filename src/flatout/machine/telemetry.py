"""Data classes of one sample of GPUs and host. A value that is not available is a `Missing` with its reason.

What a driver gives that cannot be true (0 degrees, three times the power limit) is `Missing("implausible")`, never shown as a
figure: a card that has fallen asleep or off the bus answers with such values before it answers with errors.
"""

from __future__ import annotations

from typing import ClassVar

from flatout.base.records import Missing, Record, Struct, field

UNKNOWN = Missing("not-reported")


class CardProcess(Struct, frozen=True, kw_only=True, omit_defaults=True):
    pid: int | Missing = UNKNOWN
    name: str | Missing = UNKNOWN
    memory_bytes: int | Missing = UNKNOWN
    busy_percent: int | Missing = UNKNOWN  # of the card's time, since the look before


class CardSample(Struct, frozen=True, kw_only=True, omit_defaults=True):
    index: int
    name: str | Missing = UNKNOWN
    uuid: str | Missing = UNKNOWN
    utilisation: int | Missing = UNKNOWN  # percent of the time in which any kernel ran
    memory_busy: int | Missing = UNKNOWN  # percent of the time in which its memory was read or written
    memory_used_bytes: int | Missing = UNKNOWN
    memory_total_bytes: int | Missing = UNKNOWN
    processes: tuple[CardProcess, ...] | Missing = UNKNOWN
    temperature_c: int | Missing = UNKNOWN
    temperature_limit_c: int | Missing = UNKNOWN  # where the card begins to lower its clocks
    power_w: float | Missing = UNKNOWN
    power_limit_w: float | Missing = UNKNOWN
    sm_clock_mhz: int | Missing = UNKNOWN
    sm_clock_max_mhz: int | Missing = UNKNOWN
    memory_clock_mhz: int | Missing = UNKNOWN
    memory_clock_max_mhz: int | Missing = UNKNOWN
    fan_percent: int | Missing = UNKNOWN
    link_generation: int | Missing = UNKNOWN
    link_generation_max: int | Missing = UNKNOWN
    link_width: int | Missing = UNKNOWN
    link_width_max: int | Missing = UNKNOWN
    link_received_bytes_s: int | Missing = UNKNOWN  # by the card
    link_sent_bytes_s: int | Missing = UNKNOWN
    encoder_percent: int | Missing = UNKNOWN
    decoder_percent: int | Missing = UNKNOWN
    idle: bool | Missing = UNKNOWN  # the driver's own word: nothing runs, so clocks are low
    held_by: tuple[str, ...] | Missing = UNKNOWN  # why clocks are held back, names of `data/drivers.toml`; idleness is none
    ecc_corrected: int | Missing = UNKNOWN  # since the driver was loaded
    ecc_uncorrected: int | Missing = UNKNOWN
    rows_remapped: int | Missing = UNKNOWN
    remap_pending: bool | Missing = UNKNOWN
    remap_failed: bool | Missing = UNKNOWN


class HostSample(Struct, frozen=True, kw_only=True, omit_defaults=True):
    cpu_percent: float | Missing = UNKNOWN  # of all cores
    core_percent: tuple[float, ...] | Missing = UNKNOWN
    memory_used_bytes: int | Missing = UNKNOWN
    memory_total_bytes: int | Missing = UNKNOWN
    swap_used_bytes: int | Missing = UNKNOWN
    swap_total_bytes: int | Missing = UNKNOWN
    swap_in_bytes_s: float | Missing = UNKNOWN
    swap_out_bytes_s: float | Missing = UNKNOWN
    shm_used_bytes: int | Missing = UNKNOWN
    shm_total_bytes: int | Missing = UNKNOWN
    disk_read_bytes_s: float | Missing = UNKNOWN
    disk_written_bytes_s: float | Missing = UNKNOWN
    net_received_bytes_s: float | Missing = UNKNOWN
    net_sent_bytes_s: float | Missing = UNKNOWN
    io_stalled: float | Missing = UNKNOWN  # share of the time in which some program waited for a disk


class Sample(Record, frozen=True):  # type: ignore[misc]  # msgspec allows it
    """One look at all cards and at the host."""

    KIND: ClassVar[str] = "telemetry-sample"

    t: float  # seconds since the epoch; never runs back within a session, whatever is done to the machine's clock
    cards: tuple[CardSample, ...] | Missing = UNKNOWN
    host: HostSample = field(default_factory=HostSample)


def plausible(value: float | Missing, low: float, high: float) -> float | Missing:
    """`value` where it lies above `low` and not above `high`; both bounds are those of physics, not of good habits."""
    if isinstance(value, Missing) or low < value <= high:
        return value
    return Missing("implausible", f"{value:g}")


def whole(value: float | Missing, low: float, high: float) -> int | Missing:
    kept = plausible(value, low, high)
    return kept if isinstance(kept, Missing) else int(kept)
