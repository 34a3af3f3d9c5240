"""How many workers this machine has room for, and whether a loader's work can be given to workers at all."""

from __future__ import annotations

import ast
import os
import shutil
import sqlite3
import sys
from io import IOBase
from typing import Any

from _flatout_agent.knobs.loader.fetch_randomness import parts_of

MEMORY_OF_A_FORK = 128 << 20  # pages it writes itself: reference counts, decoded samples
MEMORY_OF_A_SPAWN = 512 << 20  # an interpreter with torch of its own
WORKERS_PER_PROCESSOR = 4
FILES_OF_A_WORKER = 8  # two queues, an event, a sentinel
FILES_IN_RESERVE = 64

# Shared between processes they read each other's position.
HANDLES = {("h5py", "File"), ("h5py", "Dataset"), ("h5py", "Group"), ("lmdb", "Environment"), ("zipfile", "ZipFile")}

# What a sampler may have beside its indices; anything else may be fed by the training loop.
SAMPLER_METHODS = {"set_epoch", "state_dict", "load_state_dict"}


def obstacle(torch: Any, loader: Any) -> tuple[str, dict[str, Any]] | None:
    """Why this loader's iterators must not be exchanged, if so."""
    from torch.utils.data import IterableDataset

    if isinstance(loader.dataset, IterableDataset):
        return "iterable-dataset", {"dataset": type(loader.dataset).__name__}
    if not getattr(loader, "in_order", True):
        return "out-of-order-loader", {}
    for sampler in samplers_from(loader._index_sampler):
        feedback = feedback_methods(sampler)
        if feedback:
            return "feedback-sampler", {"sampler": type(sampler).__name__, "methods": feedback}
    return None


def worker_obstacle(torch: Any, loader: Any) -> tuple[str, dict[str, Any]] | None:
    """Why this loader's fetching must stay in this process, if so."""
    import multiprocessing

    if multiprocessing.current_process().daemon:
        return "daemonic-process", {}
    for path, part in parts_of(loader.dataset):
        if isinstance(part, torch.Tensor) and part.is_cuda:
            return "cuda-tensors-in-dataset", {"where": path}
        kind = type(part)
        if isinstance(part, (sqlite3.Connection, IOBase)) or (kind.__module__.split(".")[0], kind.__name__) in HANDLES:
            return "open-handle-in-dataset", {"where": path, "class": kind.__name__}
    if start_method(loader) != "fork" and not main_is_guarded():
        return "no-main-guard", {"start_method": start_method(loader)}
    return None


def most_workers(loader: Any, prefetch: int, batch_bytes: int, batch_tensors: int) -> tuple[int, str]:
    """The most workers there is room for, and what sets this limit."""
    each = MEMORY_OF_A_FORK if start_method(loader) == "fork" else MEMORY_OF_A_SPAWN
    in_flight = max(1, prefetch) * batch_bytes
    # Workers that wait for a disk or a network need no processor each; beyond this they only stand in each other's way.
    room = [(WORKERS_PER_PROCESSOR * processors(), "processors")]
    memory = free_memory()
    if memory is not None:
        room.append((int(memory * 0.8) // (each + in_flight), "memory"))
    shared = shared_memory()
    if shared is not None and in_flight:
        room.append((int(shared * 0.8) // in_flight, "shared-memory"))
    files = free_files()
    if files is not None:
        room.append(
            ((files - FILES_IN_RESERVE) // (FILES_OF_A_WORKER + max(1, prefetch) * max(1, batch_tensors)), "open-files")
        )
    least = min(room)
    return max(0, least[0]), least[1]


def start_method(loader: Any) -> str:
    import multiprocessing

    context = loader.multiprocessing_context
    return str((context or multiprocessing).get_start_method())


def main_is_guarded() -> bool:
    """Whether importing the script again, as a spawned worker does, would not train again."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if path is None or getattr(main, "__spec__", None) is not None:
        return path is None or _has_guard(path)
    return _has_guard(path)


def _has_guard(path: str) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return False
    return any(
        isinstance(node, ast.If) and any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test))
        for node in tree.body
    )


def processors() -> int:
    """Those this process may use: affinity and the control group's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = _first_line("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit():
        count = min(count, max(1, -(-int(quota[0]) // int(quota[1]))))
    return count


def free_memory() -> int | None:
    found = []
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = [int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable")]
    except (OSError, ValueError):
        pass
    limit, used = _first_line("/sys/fs/cgroup/memory.max"), _first_line("/sys/fs/cgroup/memory.current")
    if limit.isdigit() and used.isdigit():
        found.append(max(0, int(limit) - int(used)))
    return min(found) if found else None


def shared_memory() -> int | None:
    try:
        return shutil.disk_usage("/dev/shm").free
    except OSError:
        return None


def free_files() -> int | None:
    try:
        import resource

        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return None if soft == resource.RLIM_INFINITY else soft - len(os.listdir("/proc/self/fd"))
    except (ImportError, OSError):
        return None


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.readline().strip()
    except OSError:
        return ""


def samplers_from(sampler: Any) -> list[Any]:
    """It, and those inside it."""
    found = [sampler]
    while True:
        inner = getattr(found[-1], "sampler", None) or getattr(found[-1], "batch_sampler", None)
        if inner is None or any(inner is known for known in found):
            return found
        found.append(inner)


def feedback_methods(sampler: Any) -> list[str]:
    """Public methods of a sampler of the script's own: `update(losses)` means that its order depends on training."""
    methods: set[str] = set()
    for kind in type(sampler).__mro__:
        if not kind.__module__.startswith(("torch.utils.data", "builtins", "typing", "collections")):
            methods |= {name for name, member in vars(kind).items() if callable(member) and not name.startswith("_")}
    return sorted(methods - SAMPLER_METHODS)
