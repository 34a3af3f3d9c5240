"""What a worker of ours does between two epochs: tells what it has become, and begins anew as a fresh one would.

Both come as messages of torch's own kind, which torch's workers take and give back: what stands in them is done as they are
unpickled, in the worker's main thread, and what it gives is what the message holds when it goes back.
"""

from __future__ import annotations

import importlib
import os
import random
import sys
import threading
from typing import Any, Callable, NamedTuple

from _flatout_agent.knobs.loader.reuse.fetch_checksum import FetchState
from _flatout_agent.knobs.loader.reuse.restart_reasons import Renewal, raised


class Told(NamedTuple):
    """By a worker that has nothing to do."""

    renewal: Renewal | None  # None: nothing that fetching reads is other than it was as this worker was started
    memory: int  # bytes that no other process has


class Birth(NamedTuple):
    """What the parent knew just before it forked; the worker has it from then on."""

    checksum: bytes | None
    look: Callable[[], FetchState]
    initialise: Callable[[int], Any] | None  # the script's own


_birth: Birth | None = None
_failed: list[Exception] = []


def will_be_born(birth: Birth | None) -> None:
    """Of the workers that are started next."""
    global _birth
    _birth = birth


class Look:
    """Unpickled it is what the worker tells."""

    def __reduce__(self) -> tuple[Any, ...]:
        return tell, ()


class Begin:
    """Stands in the message of torch's `_reset` where pipes of data have a seed."""

    def __init__(self, base_seed: int) -> None:
        self._base_seed = base_seed

    def __reduce__(self) -> tuple[Any, ...]:
        return begin, (self._base_seed,)


class Collating:
    """The script's collation, in a worker that may live longer than an epoch."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate

    def __call__(self, samples: Any) -> Any:
        if _failed:  # torch, too, raises it as the first batch is fetched
            raise _failed.pop()
        return self._collate(samples)


def tell() -> Told:
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # as a worker that ends
        return Told(_change(), own_memory())
    except Exception as error:
        return Told(raised(error), 0)


def _change() -> Renewal | None:
    if _birth is None or _birth.checksum is None:
        return Renewal("failed", "nothing is known of a worker")
    others = [one.name for one in threading.enumerate() if one is not threading.main_thread()]
    started = [name for name in others if "QueueFeeder" not in name]
    if started:
        return Renewal("thread-started", started[0])
    state: FetchState = _birth.look()
    if state.checksum is None:
        return state.unknown
    return None if state.checksum == _birth.checksum else Renewal("fetching-changes-it")


def begin(base_seed: int) -> None:
    """As `_worker_loop` begins, in its order: the rest of the worker is as it was when it was forked."""
    import torch
    from torch.utils.data import _utils
    from torch.utils.data._utils import worker

    info = worker._worker_info
    assert info is not None
    torch.set_num_threads(1)
    seed = base_seed + info.id
    random.seed(seed)
    torch.manual_seed(seed)
    if _utils.HAS_NUMPY:
        importlib.import_module("numpy").random.seed(worker._generate_state(base_seed, info.id))
    fields = ("id", "num_workers", "seed", "dataset", "rng", "worker_method")
    held = {name: getattr(info, name) for name in fields if hasattr(info, name)}
    worker._worker_info = type(info)(**{**held, "seed": seed})
    _failed.clear()
    if _birth is not None and _birth.initialise is not None:
        try:
            _birth.initialise(info.id)
        except Exception as error:
            _failed.append(error)


def own_memory() -> int:
    """Bytes of this process that no other has."""
    try:
        with open("/proc/self/smaps_rollup", encoding="ascii") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Private_"))
    except (OSError, ValueError):
        pass
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            resident, shared = file.read().split()[1:3]
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 0
