"""The device's memory: what is in use, what was at most, and whether it grows."""

from __future__ import annotations

from typing import Any

MOST_POINTS = 64


class Thinned:
    """At most some points of a series, evenly spread however long it grows."""

    def __init__(self) -> None:
        self.points: list[list[float]] = []
        self._stride = 1
        self._seen = 0

    def add(self, step: int, value: float) -> None:
        if self._seen % self._stride == 0:
            self.points.append([step, value])
            if len(self.points) >= MOST_POINTS:
                self.points = self.points[::2]
                self._stride *= 2
        self._seen += 1


class MemoryState:
    """Asked of the caching allocator's own books: no call to the driver."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._trend = Thinned()

    def sample(self, step: int) -> None:
        """In the middle of a step, always at the same place: what grows from one to the next stays."""
        books = self._torch._C._cuda_memoryStats(self._torch.cuda.current_device())
        self._trend.add(step, books["allocated_bytes"]["all"]["current"])

    def told(self) -> dict[str, Any]:
        cuda = self._torch.cuda
        if not cuda.is_initialized():  # a forked child, too: the books of its parent are not its own
            return {}
        device = cuda.current_device()
        books = self._torch._C._cuda_memoryStats(device)
        allocated = books["allocated_bytes"]["all"]
        return {
            "memory": {
                "allocated": allocated["current"],
                "peak": allocated["peak"],
                "reserved": books["reserved_bytes"]["all"]["current"],
                "peak_reserved": books["reserved_bytes"]["all"]["peak"],
                "total": cuda.get_device_properties(device).total_memory,
                "retries": books["num_alloc_retries"],
                "ooms": books["num_ooms"],
            },
            "memory_trend": self._trend.points,
        }
