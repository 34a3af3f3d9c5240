"""One sample of all GPUs through NVML: changing values each time, nearly constant ones every tenth time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from flatout.base.records import Missing, replace
from flatout.machine import nvml
from flatout.machine.nvml_door import Door
from flatout.machine.telemetry import CardProcess, CardSample, plausible, whole

T = TypeVar("T")

SELDOM = 10  # looks: names, limits, the link, errors of its memory. The link's traffic takes the driver 20 ms each way.

# Bounds of physics. A sensor that is asleep says 0; one that is broken 255, or a number of billions.
HOTTEST_C = 150
MOST_WATTS = 5000
ABOVE_LIMIT = 2.0  # short peaks pass the power limit by a third; nothing passes it by a factor
FASTEST_MHZ = 20_000
ABOVE_MAXIMUM = 1.5
MOST_BYTES = 1 << 50
LARGEST = 1 << 62

UTILISATION_SINCE_US = 2_000_000  # of the processes: where nothing was asked before

GONE = Missing("card-gone")
LOST = frozenset({"nvml-gpu-lost", "nvml-not-open", "nvml-driver-not-loaded"})


class CardLook:
    """`look()` gives one sample a card. A card that is lost keeps its place, its name and a reason for everything else."""

    def __init__(self, door: Door | None = None) -> None:
        self._door = door or Door()
        self._looks = 0
        self._count = -1
        self._seldom: dict[int, CardSample] = {}
        self._seen: dict[str, CardSample] = {}  # by identity: who was here
        self._asked_us: dict[int, int] = {}

    def look(self) -> tuple[CardSample, ...] | Missing:
        count = self._door.look()
        if isinstance(count, Missing):
            lost = self._lost(set(), count)
            return lost or count
        if count != self._count:
            self._door.forget()
            self._seldom.clear()
            self._count = count
        renew = self._looks % SELDOM == 0
        self._looks += 1
        cards = [self._card(index, renew) for index in range(count)]
        return (*cards, *self._lost({card.uuid for card in cards if isinstance(card.uuid, str)}, GONE))

    def close(self) -> None:
        self._door.close()

    def _card(self, index: int, renew: bool) -> CardSample:
        before = self._seldom.get(index)
        if renew or before is None or isinstance(before.uuid, Missing):
            now = self._asked_seldom(index)
            # A card that does not tell its name now is the one that told it before.
            if before is not None and isinstance(now.uuid, Missing):
                now = replace(now, name=before.name, uuid=before.uuid)
            before = self._seldom[index] = now
        card = self._changing(index, before)
        if isinstance(card.utilisation, Missing) and card.utilisation.reason in LOST:
            card = _nothing_but(card.utilisation, card)  # what was asked some looks ago is not true of it any more
        if isinstance(card.uuid, str):
            self._seen[card.uuid] = CardSample(index=index, name=card.name, uuid=card.uuid)
        return card

    def _lost(self, here: set[str], why: Missing) -> tuple[CardSample, ...]:
        gone = [card for uuid, card in self._seen.items() if uuid not in here]
        return tuple(_nothing_but(why, card) for card in gone)

    def _asked_seldom(self, index: int) -> CardSample:
        def told(question: Callable[[Any, Any], T]) -> T | Missing:
            return self._door.ask(index, question)

        rows = told(lambda n, h: tuple(n.nvmlDeviceGetRemappedRows(h)[:4]))
        limit = told(lambda n, h: n.nvmlDeviceGetTemperatureThreshold(h, n.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN))
        return CardSample(
            index=index,
            name=_text(told(lambda n, h: n.nvmlDeviceGetName(h))),
            uuid=_text(told(lambda n, h: n.nvmlDeviceGetUUID(h))),
            temperature_limit_c=_whole(limit, 0, HOTTEST_C),
            power_limit_w=_number(told(nvml.power_limit_of), 0, MOST_WATTS),
            sm_clock_max_mhz=_whole(told(lambda n, h: n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM)), 0, FASTEST_MHZ),
            memory_clock_max_mhz=_whole(told(lambda n, h: n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_MEM)), 0, FASTEST_MHZ),
            link_generation=_whole(told(lambda n, h: n.nvmlDeviceGetCurrPcieLinkGeneration(h)), 0, 16),
            link_generation_max=_whole(told(lambda n, h: n.nvmlDeviceGetMaxPcieLinkGeneration(h)), 0, 16),
            link_width=_whole(told(lambda n, h: n.nvmlDeviceGetCurrPcieLinkWidth(h)), 0, 64),
            link_width_max=_whole(told(lambda n, h: n.nvmlDeviceGetMaxPcieLinkWidth(h)), 0, 64),
            link_received_bytes_s=_bytes_a_second(told(lambda n, h: _traffic(n, h, n.NVML_PCIE_UTIL_RX_BYTES))),
            link_sent_bytes_s=_bytes_a_second(told(lambda n, h: _traffic(n, h, n.NVML_PCIE_UTIL_TX_BYTES))),
            ecc_corrected=_count(told(lambda n, h: _errors(n, h, n.NVML_MEMORY_ERROR_TYPE_CORRECTED))),
            ecc_uncorrected=_count(told(lambda n, h: _errors(n, h, n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED))),
            rows_remapped=rows if isinstance(rows, Missing) else _count(_sum(rows[:2])),
            remap_pending=rows if isinstance(rows, Missing) else _flag(rows, 2),
            remap_failed=rows if isinstance(rows, Missing) else _flag(rows, 3),
        )

    def _changing(self, index: int, seldom: CardSample) -> CardSample:
        def told(question: Callable[[Any, Any], T]) -> T | Missing:
            return self._door.ask(index, question)

        rates = told(lambda n, h: _pair(n.nvmlDeviceGetUtilizationRates(h), "gpu", "memory"))
        memory = told(_memory)
        total = memory if isinstance(memory, Missing) else _whole(memory[1], 0, MOST_BYTES)
        most = total if isinstance(total, int) else MOST_BYTES
        events = told(nvml.clock_events_of)
        limit, ceiling = seldom.power_limit_w, seldom.sm_clock_max_mhz
        power = told(lambda n, h: n.nvmlDeviceGetPowerUsage(h) / 1000)
        clock = told(lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM))
        return replace(
            seldom,
            utilisation=rates if isinstance(rates, Missing) else _percent(rates[0]),
            memory_busy=rates if isinstance(rates, Missing) else _percent(rates[1]),
            memory_used_bytes=memory if isinstance(memory, Missing) else _whole(memory[0], -1, most),
            memory_total_bytes=total,
            processes=self._processes(index),
            temperature_c=_whole(told(lambda n, h: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU)), 0, HOTTEST_C),
            power_w=_number(power, 0, MOST_WATTS if isinstance(limit, Missing) else ABOVE_LIMIT * limit),
            sm_clock_mhz=_whole(clock, 0, FASTEST_MHZ if isinstance(ceiling, Missing) else ABOVE_MAXIMUM * ceiling),
            memory_clock_mhz=_whole(told(lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM)), 0, FASTEST_MHZ),
            fan_percent=_whole(told(lambda n, h: n.nvmlDeviceGetFanSpeed(h)), -1, 200),
            encoder_percent=_percent(told(lambda n, h: n.nvmlDeviceGetEncoderUtilization(h)[0])),
            decoder_percent=_percent(told(lambda n, h: n.nvmlDeviceGetDecoderUtilization(h)[0])),
            idle=events if isinstance(events, Missing) else "GPU_IDLE" in events,
            held_by=events if isinstance(events, Missing) else tuple(name for name in events if name != "GPU_IDLE"),
        )

    def _processes(self, index: int) -> tuple[CardProcess, ...] | Missing:
        running = self._door.ask(index, nvml.processes_of)
        if isinstance(running, Missing):
            return running
        busy = self._busy(index) if running else {}
        return tuple(
            CardProcess(
                pid=one.pid,
                name=one.name,
                memory_bytes=_whole(one.memory_bytes, -1, MOST_BYTES),
                busy_percent=busy if isinstance(busy, Missing) else busy.get(one.pid, 0) if isinstance(one.pid, int) else 0,
            )
            for one in running
        )

    def _busy(self, index: int) -> dict[int, int] | Missing:
        """By process: the mean of the driver's own samples since the look before."""
        since = self._asked_us.get(index, 0)
        entries = self._door.ask(
            index,
            lambda n, h: [(int(e.timeStamp), int(e.pid), int(e.smUtil)) for e in n.nvmlDeviceGetProcessUtilization(h, since)],
        )
        if isinstance(entries, Missing):
            # "Not found": no process has used it since.
            return {} if entries.reason == "nvml-not-found" else entries
        newest = max((stamp for stamp, _, _ in entries), default=since)
        self._asked_us[index] = newest
        if not since:
            entries = [entry for entry in entries if entry[0] > newest - UTILISATION_SINCE_US]
        found: dict[int, list[int]] = {}
        for _, pid, share in entries:
            if 0 <= share <= 100:
                found.setdefault(pid, []).append(share)
        return {pid: round(sum(shares) / len(shares)) for pid, shares in found.items()}


def _nothing_but(why: Missing, card: CardSample) -> CardSample:
    others = [name for name in CardSample.__struct_fields__ if name not in ("index", "name", "uuid")]
    return replace(card, **dict.fromkeys(others, why))


def _memory(library: Any, handle: Any) -> tuple[Any, Any]:
    """Used and total, as nvidia-smi has them: without what the driver keeps for itself, where it tells the two apart."""
    try:
        return _pair(library.nvmlDeviceGetMemoryInfo(handle, library.nvmlMemory_v2), "used", "total")
    except (AttributeError, TypeError, library.NVMLError):  # an older package or driver
        answer = library.nvmlDeviceGetMemoryInfo(handle)
        return answer.total - answer.free, answer.total


def _pair(answer: Any, first: str, second: str) -> tuple[Any, Any]:
    return getattr(answer, first), getattr(answer, second)


def _traffic(library: Any, handle: Any, direction: Any) -> int:
    return int(library.nvmlDeviceGetPcieThroughput(handle, direction)) * 1024  # it answers in KiB a second


def _errors(library: Any, handle: Any, kind: Any) -> int:
    return int(library.nvmlDeviceGetTotalEccErrors(handle, kind, library.NVML_VOLATILE_ECC))


# -- what a driver may answer instead of a figure ---------------------------------------------------------------------------


def _text(value: Any) -> str | Missing:
    if isinstance(value, Missing):
        return value
    return nvml.text_of(value) if isinstance(value, str | bytes) else Missing("implausible", str(value)[:40])


def _number(value: Any, low: float, high: float) -> float | Missing:
    if isinstance(value, Missing):
        return value
    # Compared before it is converted: an int may be too large to be a float.
    if not isinstance(value, int | float) or isinstance(value, bool) or not -LARGEST < value < LARGEST:
        return Missing("implausible", str(value)[:40])
    return plausible(float(value), low, high)


def _whole(value: Any, low: float, high: float) -> int | Missing:
    number = _number(value, low, high)
    return number if isinstance(number, Missing) else whole(number, low, high)


def _percent(value: Any) -> int | Missing:
    return _whole(value, -1, 100)


def _count(value: Any) -> int | Missing:
    return _whole(value, -1, LARGEST)


def _bytes_a_second(value: Any) -> int | Missing:
    return _whole(value, -1, 1 << 42)


def _sum(rows: Any) -> Any:
    return sum(rows) if all(isinstance(part, int) for part in rows) else str(rows)


def _flag(rows: Any, place: int) -> bool | Missing:
    return bool(rows[place]) if len(rows) > place else Missing("not-reported")
