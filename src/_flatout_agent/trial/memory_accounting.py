"""What a trial's memory came to: the peak since a moment, the allocator's second tries, and what there is at most.

On a card by the caching allocator's books; on the processor by the peak of the resident set, which only grows.
"""

from __future__ import annotations

import sys
from typing import Any

from _flatout_agent.knobs.loader.worker_limits import free_memory

BELOW_THE_CARD = 0.9


class Books:
    """Counts from the start of the process until `begin` is called for the first time: what came before a knob counts too."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._retries = 0

    def begin(self, device_type: str, tidy: bool) -> None:
        """From here on. `tidy`: what earlier batches left in the allocator's cache would hide the growth of the next."""
        if device_type != "cuda":
            return
        cuda = self._torch.cuda
        if tidy:
            cuda.synchronize()
            cuda.empty_cache()
        cuda.reset_peak_memory_stats()
        self._retries = cuda.memory_stats().get("num_alloc_retries", 0)

    def told(self, device_type: str, ours: int) -> dict[str, Any]:
        """`ours`: bytes that a training would not have there."""
        if device_type != "cuda":
            peak = peak_resident()
            return {} if peak is None else {"memory_peak": max(0, peak - ours)}
        books = self._torch.cuda.memory_stats()
        return {
            "memory_peak": max(0, books.get("reserved_bytes.all.peak", 0) - ours),
            "memory_allocated": max(0, books.get("allocated_bytes.all.peak", 0) - ours),
            "alloc_retries": books.get("num_alloc_retries", 0) - self._retries,
        }

    def limit(self, device_type: str, fraction: float | None) -> int | None:
        """What this process may come to: its cap, and what is free beside it and beside others."""
        if device_type != "cuda":
            free, here = free_memory(), peak_resident()
            return None if free is None or here is None else free + here
        cuda = self._torch.cuda
        free, total = cuda.mem_get_info()
        reach = free + cuda.memory_reserved()
        return int(min(reach, fraction * total)) if fraction is not None else int(reach)

    def is_capped(self, device_type: str, fraction: float | None) -> bool:
        """Whether the cap ends the memory well before the card does: then nobody else can take what it leaves."""
        if device_type != "cuda" or fraction is None:
            return False
        free, total = self._torch.cuda.mem_get_info()
        return bool(fraction * total < BELOW_THE_CARD * (free + self._torch.cuda.memory_reserved()))


def peak_resident() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024
