"""What a journal says of the device, the losses and a sudden end, read tolerantly.

Older agents wrote none of it, a training on the processor has none, and a field of a wrong shape is left out: it must not
cost the reader the rest of the run.
"""

from __future__ import annotations

import math
from typing import Any

from flatout.base.records import Missing
from flatout.machine.run_look import (
    BlockingRead,
    Copies,
    CoreUse,
    DeviceBusy,
    DeviceLag,
    DeviceLook,
    DeviceMemory,
    DeviceMix,
    Holder,
    Losses,
    OutOfMemory,
    PlacedTensor,
    Regime,
    ScriptLine,
)
from flatout.measure.growth import grown

Line = dict[str, Any]

NANO = 1e-9
UNKNOWN = Missing("not-reported")
LONGEST_MESSAGE = 2000


def device_of(window: Line) -> DeviceLook:
    kernels = _number(window.get("kernels_per_step"))
    return DeviceLook(
        memory=memory_of(window.get("memory")),
        growth=grown([(int(step), int(used)) for step, used in _pairs(window.get("memory_trend"))]),
        lag=_lag(window.get("lag")),
        busy=_busy(window.get("device_busy")),
        reads=_reads(window.get("reads")),
        copies=_copies(window.get("copies")),
        regime=_regime(window.get("regime")),
        cores=_cores(window.get("cores")),
        kernels_per_step=kernels if kernels is not None else UNKNOWN,
    )


def losses_of(window: Line) -> Losses:
    entries = [(entry[0], _loss(entry[1])) for entry in _list(window.get("losses")) if _is_pair(entry)]
    points = sorted(((int(step), value) for step, value in entries if _number(step) is not None), key=lambda one: one[0])
    finite = [point for point in points if math.isfinite(point[1])]
    last = finite[-1][0] if finite else -1
    broken = [step for step, value in points if step > last and not math.isfinite(value)]
    return Losses(points=finite, not_finite=len(points) - len(finite), not_finite_from=broken[0] if broken else UNKNOWN)


def script_lines(window: Line, whole_s: float) -> list[ScriptLine]:
    """Looks at a thread tell shares; of what the phase took in all."""
    seen = _number(window.get("own_lines_seen"))
    pairs = [pair for pair in _list(window.get("own_lines")) if isinstance(pair, list) and len(pair) == 2]
    if not seen or seen <= 0:
        return []
    return [ScriptLine(site=str(site), spent_s=min(1.0, (_number(spent) or 0.0) / seen) * whole_s) for site, spent in pairs]


def tokens_of(window: Line) -> int | None:
    return _count(window.get("tokens")) or None


def out_of_memory(lines: list[Line]) -> OutOfMemory | None:
    """The last one: an earlier one the script has survived."""
    line = next((line for line in reversed(lines) if line.get("kind") == "oom"), None)
    if line is None:
        return None
    holders = [
        Holder(what=str(entry.get("what")), bytes=size)
        for entry in _dicts(line.get("holders"))
        if (size := _count(entry.get("bytes")))
    ]
    return OutOfMemory(
        step=_known(_count(line.get("step"))),
        message=str(line.get("message") or "")[:LONGEST_MESSAGE],
        memory=memory_of(line.get("memory")) or DeviceMemory(),
        holders=sorted(holders, key=lambda holder: -holder.bytes),
        batch=_known(_count(line.get("batch")) or None),
    )


def device_mix(lines: list[Line]) -> DeviceMix | None:
    line = next((line for line in reversed(lines) if line.get("kind") == "devices"), None)
    if line is None:
        return None
    return DeviceMix(
        site=str(line["site"]) if line.get("site") else UNKNOWN,
        message=str(line.get("message") or "")[:LONGEST_MESSAGE],
        tensors=[
            PlacedTensor(name=str(entry.get("name") or "?"), device=str(entry.get("device") or "?"))
            for entry in _dicts(line.get("tensors"))
        ],
    )


def memory_of(entry: Any) -> DeviceMemory | None:
    if not isinstance(entry, dict):
        return None
    return DeviceMemory(
        allocated_bytes=_known(_count(entry.get("allocated"))),
        reserved_bytes=_known(_count(entry.get("reserved"))),
        peak_bytes=_known(_count(entry.get("peak"))),
        peak_reserved_bytes=_known(_count(entry.get("peak_reserved"))),
        total_bytes=_known(_count(entry.get("total"))),
        retries=_count(entry.get("retries")) or 0,
        ooms=_count(entry.get("ooms")) or 0,
    )


def _lag(entry: Any) -> DeviceLag | None:
    if not isinstance(entry, dict) or not (samples := _count(entry.get("count"))):
        return None
    starved, total = _count(entry.get("starved")) or 0, _number(entry.get("mid_ns")) or 0.0
    return DeviceLag(samples=samples, starved=min(starved, samples), mean_s=max(0.0, total) * NANO / samples)


def _busy(entry: Any) -> DeviceBusy | None:
    if not _is_pair(entry):
        return None
    busy, span = _number(entry[0]), _number(entry[1])
    return DeviceBusy(busy_s=max(0.0, busy) * NANO, span_s=span * NANO) if busy is not None and span else None


def _reads(entries: Any) -> list[BlockingRead]:
    found = [
        BlockingRead(site=str(entry["site"]), what=str(entry.get("what") or "item"), total_s=spent * NANO, count=count)
        for entry in _dicts(entries)
        if entry.get("site") and (spent := _number(entry.get("ns"))) and (count := _count(entry.get("count")))
    ]
    return sorted(found, key=lambda read: -read.total_s)


def _copies(entry: Any) -> Copies | None:
    if not isinstance(entry, dict):
        return None
    copies = Copies(**{name: _count(entry.get(name)) or 0 for name in ("pinned", "unpinned", "blocking", "bytes")})
    return copies if copies.pinned + copies.unpinned else None


def _cores(entry: Any) -> CoreUse | None:
    if not isinstance(entry, dict) or not (span := _count(entry.get("span"))):
        return None
    names = ("running", "queueing", "workers_running", "workers_queueing", "own")
    return CoreUse(span_s=span * NANO, **{f"{name}_s": (_count(entry.get(name)) or 0) * NANO for name in names})


def _regime(entry: Any) -> Regime | None:
    if not isinstance(entry, dict):
        return None
    capability: Any = entry.get("capability")
    return Regime(
        autocast=_flag(entry.get("autocast")),
        tf32=_flag(entry.get("tf32")),
        dtype=_text(entry.get("dtype")),
        compiled=_flag(entry.get("compiled")),
        device=_text(entry.get("device")),
        capability=f"{capability[0]}.{capability[1]}" if _is_pair(capability) else UNKNOWN,
        parameters=_known(_count(entry.get("parameters"))),
    )


# -- shapes ----------------------------------------------------------------------------------------------------------------


def _number(value: Any) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(value) else None


def _count(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number >= 0 else None


def _loss(value: Any) -> float:
    """An agent that keeps to strict JSON writes null, others Python's NaN and Infinity."""
    number = _number(value)
    return math.nan if number is None else number


def _known(value: int | None) -> int | Missing:
    return UNKNOWN if value is None else value


def _flag(value: Any) -> bool | Missing:
    return value if isinstance(value, bool) else UNKNOWN


def _text(value: Any) -> str | Missing:
    return value.removeprefix("torch.") if isinstance(value, str) and value else UNKNOWN


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: Any) -> list[Line]:
    return [entry for entry in _list(value) if isinstance(entry, dict)]


def _is_pair(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2


def _pairs(value: Any) -> list[tuple[float, float]]:
    numbers = [(_number(entry[0]), _number(entry[1])) for entry in _list(value) if _is_pair(entry)]
    return [(first, second) for first, second in numbers if first is not None and second is not None]
