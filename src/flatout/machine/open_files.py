"""Which large files processes have open or mapped, as the kernel tells; nothing where it does not."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

LARGE = 64 << 20  # bytes: smaller ones do not fill a memory unless there are very many
LIBRARIES = (".so", "/site-packages/", "/dist-packages/")
PROC = Path("/proc")


def large_files(pids: Iterable[int], proc: Path = PROC) -> dict[str, int]:
    """Path and size. Libraries are no data."""
    found: dict[str, int] = {}
    for pid in pids:
        for path in (*_open(proc / str(pid) / "fd"), *_mapped(proc / str(pid) / "maps")):
            if path not in found and not any(part in path for part in LIBRARIES):
                size = _size(path)
                if size >= LARGE:
                    found[path] = size
    return found


def _open(folder: Path) -> Iterator[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            path = os.readlink(folder / name)
        except OSError:
            continue
        if path.startswith("/"):
            yield path


def _mapped(maps: Path) -> Iterator[str]:
    """The sixth field of a line, which may hold blanks."""
    try:
        text = maps.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    for line in text.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/"):
            yield fields[5]


def _size(path: str) -> int:
    try:
        seen = os.stat(path)
    except OSError:
        return 0
    return seen.st_size if stat.S_ISREG(seen.st_mode) and not path.startswith(("/dev/", "/proc/")) else 0
