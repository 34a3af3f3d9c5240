"""A few steps under torch's profiler: how busy the device was, with which kernels; on the processor with which operators."""

from __future__ import annotations

import os
from time import perf_counter_ns, time_ns
from typing import Any, Iterable

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.patches import Patches, dress

MOST_TOLD = 6
LONGEST_NAME = 160
SHORT_GAP = 10_000  # nanoseconds: less is the way from one kernel to the next
COPIES = ("Memcpy", "Memset")
LOG_LEVEL = "KINETO_LOG_LEVEL"


class ProfileLook:
    """There is one profiler in a process, and ours starts once: ranges that were opened under one and are closed under the
    next write into memory that is gone. So a disturbed look goes on with a new beginning, and a script that makes
    a profiler of its own has it for itself.
    """

    name = "profile"
    steps = 3
    restarts = False

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._profiler: Any = None
        self._patches = Patches()
        self._on_device = False
        self._began = 0
        self._from_ns = 0  # by the wall clock, which is the profiler's
        self._making = False
        self.lost = False  # the script wants the profiler for itself
        for owner in (torch.autograd.profiler.profile, torch.profiler.profiler._KinetoProfile):
            self._patches.put(owner, "__init__", self._giving_way(owner.__init__))

    def _giving_way(self, original: Any) -> Any:
        def __init__(theirs: Any, *args: Any, **kwargs: Any) -> None:
            if not self._making:
                try:
                    self.lost = True
                    self.abandon()
                except Exception as error:
                    fault("deep.profile", error)
            original(theirs, *args, **kwargs)

        return dress(__init__, original)

    def refusal(self) -> str | None:
        if self.lost or self._torch.autograd._profiler_enabled():
            return "script-profiles"
        if os.environ.get("NSYS_PROFILING_SESSION_ID"):
            return "other-profiler"
        return None

    def begin(self) -> None:
        profiler = self._torch.profiler
        self._on_device = self._torch.cuda.is_initialized()
        activities = [profiler.ProfilerActivity.CPU]
        activities += [profiler.ProfilerActivity.CUDA] if self._on_device else []
        self._making = True
        try:
            self._profiler = profiler.profile(activities=activities)
            start_silently(self._profiler)
        finally:
            self._making = False
        self._wait()
        self._began = perf_counter_ns()

    def again(self) -> None:
        """What came before does not count."""
        self._wait()
        self._from_ns, self._began = time_ns(), perf_counter_ns()

    def _wait(self) -> None:
        if self._on_device:
            self._torch.cuda.current_stream().synchronize()  # not `cuda.synchronize`, which is watched

    def end(self, steps: int) -> dict[str, Any]:
        if self._profiler is None:
            return {"reason": "script-profiles"}
        self._wait()
        span = perf_counter_ns() - self._began
        profiler = self._stop()
        results = profiler.profiler.kineto_results
        if not self._on_device:
            since = (self._from_ns - results.trace_start_ns()) / 1000
            return {"top": top_operators(one for one in profiler.events() if one.time_range.start >= since)}
        device = self._torch.cuda.current_device()
        work = device_work(results.events(), self._torch.autograd.DeviceType.CUDA, device, self._from_ns)
        return {"device": self._torch.cuda.get_device_name(), **device_story(work, span, steps)}

    def abandon(self) -> None:
        if self._profiler is not None:
            self._stop()

    def leave(self) -> None:
        self._patches.take_off()

    def _stop(self) -> Any:
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        return profiler


def start_silently(profiler: Any) -> None:
    """The profiler's library asks the environment, when it first starts, how much it shall write to standard error."""
    ours = LOG_LEVEL not in os.environ
    if ours:
        os.environ[LOG_LEVEL] = "99"
    try:
        profiler.start()
    finally:
        if ours:
            os.environ.pop(LOG_LEVEL, None)


def device_work(events: Iterable[Any], kind: Any, device: int, since: int = 0) -> list[tuple[str, int, int]]:
    """Name, start and duration of what the device did. Ranges that the host named are shown there too: no work."""
    events = list(events)
    of_host = {event.name() for event in events if event.device_type() != kind}
    return [
        (event.name(), event.start_ns(), event.duration_ns())
        for event in events
        if event.device_type() == kind
        and event.device_index() == device
        and event.start_ns() >= since
        and event.name() not in of_host
    ]


def device_story(work: list[tuple[str, int, int]], span: int, steps: int) -> dict[str, Any]:
    kernels = [one for one in work if not one[0].startswith(COPIES)]
    merged = union([(start, start + duration) for _, start, duration in work])
    busy = sum(end - start for start, end in merged)
    between = (merged[i][0] - merged[i - 1][1] for i in range(1, len(merged)))
    gaps = [gap for gap in between if gap > SHORT_GAP]
    return {
        "device_busy": [busy, max(span, busy)],
        "kernels_per_step": len(kernels) / steps,
        "gaps": {"count": len(gaps), "ns": sum(gaps), "longest_ns": max(gaps, default=0)},
        "copy_ns": sum(duration for name, _, duration in work if name.startswith("Memcpy")),
        "top": top_kernels(kernels),
    }


def union(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merged where they overlap: kernels on several streams run at once."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def top_kernels(kernels: list[tuple[str, int, int]]) -> list[dict[str, Any]]:
    spent: dict[str, list[int]] = {}
    for name, _, duration in kernels:
        total = spent.setdefault(name, [0, 0])
        total[0] += duration
        total[1] += 1
    return _most({name: (total[0], total[1]) for name, total in spent.items()})


def top_operators(events: Iterable[Any]) -> list[dict[str, Any]]:
    """By their own time, what they call left out."""
    spent: dict[str, tuple[int, int]] = {}
    for event in events:
        if "#" not in event.name:  # Optimizer.step#SGD.step is a range, no operator
            total, count = spent.get(event.name, (0, 0))
            spent[event.name] = (total + int(event.self_cpu_time_total * 1000), count + 1)
    return _most(spent)


def _most(spent: dict[str, tuple[int, int]]) -> list[dict[str, Any]]:
    whole = sum(spent_ns for spent_ns, _ in spent.values()) or 1
    most = sorted(spent.items(), key=lambda item: -item[1][0])[:MOST_TOLD]
    return [
        {"name": name[:LONGEST_NAME], "ns": ns, "share": round(ns / whole, 4), "count": count}
        for name, (ns, count) in most
        if ns
    ]
