"""How much compared runs read from the disk: a run that finds its data in memory has an advantage."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from flatout.base.records import Missing
from flatout.machine import host, open_files

BLOCK = 512  # bytes, in which the kernel counts


class Data(dict[str, int]):
    """Large files that a script reads from, with their sizes."""

    @property
    def beyond_memory(self) -> bool:
        """Later epochs find nothing of the first in memory: nor must a run that is compared."""
        found = host.memory()
        known = [size for size in (found.limit_bytes, found.total_bytes) if isinstance(size, int)]
        return bool(known) and sum(self.values()) > min(known)


def data_of(pid: int) -> Data:
    return Data(open_files.large_files(one.pid for one in host.family(pid)))


def read_by_children() -> int | Missing:
    """Bytes from disks, by all children of this process that have ended and theirs; it only rises."""
    try:
        import resource
    except ImportError:  # Windows
        return Missing("not-reported")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock * BLOCK


def forget(paths: Iterable[str]) -> None:
    """Takes what was read of these files out of the system's memory, as if nobody had read them yet."""
    if not hasattr(os, "posix_fadvise"):  # macOS, Windows
        return
    for path in paths:
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
