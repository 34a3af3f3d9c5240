"""Room for data: shared memory, disk, open files."""

from __future__ import annotations

import os
import shutil

from flatout.base.records import Missing
from flatout.machine.machine_facts import Application
from flatout.machine.probe_host import World

SHARED_MEMORY = "/dev/shm"


def application(world: World) -> Application:
    shm = _usage(str(world.path(SHARED_MEMORY))) if world.platform == "Linux" else Missing("not-applicable")
    folder = _usage(os.curdir)
    return Application(
        shm_bytes=shm if isinstance(shm, Missing) else shm[0],
        shm_free_bytes=shm if isinstance(shm, Missing) else shm[1],
        disk_free_bytes=folder if isinstance(folder, Missing) else folder[1],
        open_files_limit=_open_files(),
    )


def _usage(path: str) -> tuple[int, int] | Missing:
    """(size, free) of the file system that `path` is on."""
    try:
        usage = shutil.disk_usage(path)
    except FileNotFoundError:
        return Missing("not-found", path)
    except OSError as error:
        return Missing("unreadable", error.strerror or str(error))
    return usage.total, usage.free


def _open_files() -> int | Missing:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return Missing("not-applicable")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Missing("no-limit") if soft == resource.RLIM_INFINITY else soft
