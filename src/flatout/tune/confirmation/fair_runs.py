"""What makes runs inside what holds the trials comparable with the user's own.

As much of the data is in memory in each of them, and what saving costs more there is told apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatout.launch import disk_reads
from flatout.launch.protection import Protection
from flatout.launch.write_cost import slower_a_byte
from flatout.tune.confirmation.whole_run_parts import saves


class FairRuns:
    def __init__(self, protection: Protection, environ: Mapping[str, str]) -> None:
        self._protection = protection
        self._environ = environ
        self._write_cost: float | None = None
        self._read: int | None = None
        self.data = disk_reads.Data()  # large files that the script has open

    def looked(self, pid: int) -> None:
        """After its first steps, while it waits."""
        self.data = disk_reads.data_of(pid)

    def begin(self) -> None:
        if self.data.beyond_memory:
            disk_reads.forget(self.data)
        read = disk_reads.read_by_children()
        self._read = read if isinstance(read, int) else None

    def ended(self, journals: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Fields of a `RunMade`. No trial is at work now."""
        now = disk_reads.read_by_children()
        read_bytes = now - self._read if isinstance(now, int) and self._read is not None else 0
        return {"read_bytes": read_bytes, "slower_a_byte": self._slower_a_byte(journals)}

    def _slower_a_byte(self, journals: list[list[dict[str, Any]]]) -> float:
        """Asked once."""
        largest = max((saves(lines) for lines in journals), key=lambda one: int(one["largest"]), default=saves([]))
        if self._write_cost is None and largest["largest"]:
            self._write_cost = slower_a_byte(self._protection, largest["path"], largest["largest"], self._environ)
        return self._write_cost or 0.0
