"""The deep look's lines of the journals, read tolerantly: a field of a wrong shape is left out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from flatout.base.records import Missing
from flatout.machine.deep_look import Arithmetic, DeepLook, FetchCost, HotLine, SyncSite, TimedName
from flatout.machine.run_look import DeviceBusy

Line = dict[str, Any]

NANO = 1e-9
UNKNOWN = Missing("not-reported")
MOST_LINES = 5


def lines_of(journal: list[Line]) -> list[Line]:
    return [line for line in journal if line.get("kind") == "deep"]


def for_device(lines: list[Line]) -> Line:
    """What the deep look adds to what a window says of the device."""
    profile = _last(lines, "profile")
    return {name: profile[name] for name in ("device_busy", "kernels_per_step") if name in profile}


def read(own: list[Line], everybodys: list[Line]) -> DeepLook:
    """`own`: of the process that tells the run; `everybodys`: of its workers too."""
    profile, arithmetic = _last(own, "profile"), _last(own, "flops")
    steps = _number(profile.get("steps")) or 0.0
    busy = _busy(profile.get("device_busy"))
    gaps = _number(_dict(profile.get("gaps")).get("count"))
    copy = _number(profile.get("copy_ns"))
    return DeepLook(
        steps=int(sum(_number(line.get("steps")) or 0.0 for line in own)),
        cost_s=sum(_number(line.get("cost_ns")) or 0.0 for line in own) * NANO,
        device=str(profile["device"]) if profile.get("device") else UNKNOWN,
        busy=busy,
        busy_per_step_s=busy.busy_s / steps if busy and steps else UNKNOWN,
        kernels_per_step=_known(_number(profile.get("kernels_per_step"))),
        gaps_per_step=gaps / steps if gaps is not None and steps else UNKNOWN,
        copy_s=copy * NANO if copy is not None else UNKNOWN,
        top=_top(profile.get("top")),
        syncs=_syncs(_last(own, "syncs")),
        fetching=fetch_costs(everybodys),
        arithmetic=_arithmetic(arithmetic),
        refused={str(line.get("look")): str(line["reason"]) for line in own if line.get("reason")},
    )


def fetch_costs(lines: Iterable[Line]) -> list[FetchCost]:
    """The workers of one dataset taken together."""
    groups: dict[tuple[str, bool], list[Line]] = {}
    for line in lines:
        if line.get("look") == "worker" and (_number(line.get("fetched")) or 0) > 0:
            groups.setdefault((str(line.get("dataset")), bool(line.get("worker"))), []).append(line)
    costs = [_together(dataset, worker, group) for (dataset, worker), group in groups.items()]
    return sorted(costs, key=lambda cost: -cost.fetched)


def _together(dataset: str, worker: bool, group: list[Line]) -> FetchCost:
    fetched = sum(_number(line.get("fetched")) or 0.0 for line in group)
    looks = sum(_number(line.get("samples")) or 0.0 for line in group)

    def mean(name: str) -> float:
        return sum((_number(line.get(name)) or 0.0) * (_number(line.get("fetched")) or 0.0) for line in group) / fetched

    return FetchCost(
        dataset=dataset,
        source=str(group[0].get("source") or "__getitem__"),
        workers=len(group) if worker else 0,
        fetched=int(fetched),
        per_sample_s=mean("per_sample_s"),
        wall_per_sample_s=mean("wall_per_sample_s"),
        looks=int(looks),
        lines=_hot_lines(group, looks),
    )


def _hot_lines(group: list[Line], looks: float) -> list[HotLine]:
    found: dict[tuple[str, str], float] = {}
    for line in group:
        weight = _number(line.get("samples")) or 0.0
        for entry in _dicts(line.get("lines")):
            key = (str(entry.get("site") or "?"), str(entry.get("function") or "?"))
            found[key] = found.get(key, 0.0) + weight * (_number(entry.get("share")) or 0.0)
    most = sorted(found.items(), key=lambda item: -item[1])[:MOST_LINES] if looks else []
    return [HotLine(site=site, function=function, share=min(1.0, weight / looks)) for (site, function), weight in most]


def _arithmetic(line: Line) -> Arithmetic | None:
    flops = _number(line.get("flops"))
    if not flops:
        return None
    by_dtype = {str(name): value for name, part in _dict(line.get("by_dtype")).items() if (value := _number(part))}
    return Arithmetic(flops=flops, by_dtype=by_dtype, bytes_estimated=_number(line.get("bytes")) or 0.0)


def _syncs(line: Line) -> list[SyncSite] | Missing:
    if "sites" not in line:
        return Missing(str(line.get("reason") or "not-reported"))
    entries = [(entry.get("site"), _number(entry.get("count"))) for entry in _dicts(line["sites"])]
    return [SyncSite(site=str(site), per_step=count) for site, count in entries if site and count]


def _top(entries: Any) -> list[TimedName]:
    found = [
        TimedName(
            name=str(entry.get("name") or "?"), total_s=spent * NANO, share=share, count=int(_number(entry.get("count")) or 0)
        )
        for entry in _dicts(entries)
        if (spent := _number(entry.get("ns"))) and (share := _number(entry.get("share")))
    ]
    return sorted(found, key=lambda one: -one.share)


def _busy(entry: Any) -> DeviceBusy | None:
    if not isinstance(entry, list) or len(entry) != 2:
        return None
    busy, span = _number(entry[0]), _number(entry[1])
    return DeviceBusy(busy_s=max(0.0, busy) * NANO, span_s=span * NANO) if busy is not None and span else None


# -- shapes ----------------------------------------------------------------------------------------------------------------


def _last(lines: list[Line], look: str) -> Line:
    return next((line for line in reversed(lines) if line.get("look") == look), {})


def _number(value: Any) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(value) else None


def _known(value: float | None) -> float | Missing:
    return UNKNOWN if value is None else value


def _dict(value: Any) -> Line:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[Line]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
