"""Mounts and namespaces by direct system calls."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from typing import Any, NamedTuple

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
MS_RELATIME = 1 << 21
MNT_DETACH = 2
NAMESPACES = {"mount": 0x20000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class Mount(NamedTuple):
    point: str
    kind: str
    read_only: bool


def mounts() -> list[Mount]:
    """What is mounted, the outermost first."""
    found: dict[str, Mount] = {}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            words = before.split(" ")
            # Blanks in the path are written as \040.
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), words[4])
            found[point] = Mount(point, after.split(" ")[0], "ro" in words[5].split(","))
    return sorted(found.values(), key=lambda one: (one.point.count("/"), one.point))


def within(path: str, folder: str) -> bool:
    return path == folder or is_below(path, folder)


def is_below(path: str, folder: str) -> bool:
    return path != folder and path.startswith(folder.rstrip("/") + "/")


def checked(failed: int, what: str) -> None:
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    told = [os.fsencode(word) or None for word in (source, target, kind)]
    checked(libc.mount(*told, ctypes.c_ulong(flags), os.fsencode(options) or None), target)


def unmount(target: str) -> None:
    checked(libc.umount2(os.fsencode(target), MNT_DETACH), target)


def enter_root(folder: str) -> None:
    """The folder, which is mounted, becomes the root; what the root was is gone."""
    os.chdir(folder)
    checked(libc.syscall(PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    unmount(".")
    os.chdir("/")


def make_read_only(target: str) -> None:
    """With all that is mounted below."""
    real = os.path.realpath(target)
    for one in mounts():
        if within(one.point, real) and not one.read_only:
            told = os.statvfs(one.point).f_flag  # these may not be taken away
            kept = told & (MS_NOSUID | MS_NODEV | MS_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME)
            kept |= MS_RELATIME if told & os.ST_RELATIME else 0
            mount("", one.point, "", MS_REMOUNT | MS_BIND | MS_RDONLY | kept)
