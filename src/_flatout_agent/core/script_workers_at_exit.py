"""Workers of the script's own that are alive as it ends: ended before torch waits for them.

Up to 2.11 torch waits at exit for each worker that was told to stay, where batches are pinned, five seconds, and then
terminates it. Here it is terminated at once: nothing else is different.
"""

from __future__ import annotations

import atexit
import os
from typing import Any
from weakref import WeakSet, ref

from _flatout_agent.core.fault_guard import fault

_told: WeakSet[Any] = WeakSet()


def end_before_torch_waits(iterator: Any) -> None:
    """Registered right after torch's handlers for this iterator, ours runs right before them: what the script registers later
    finds the workers alive, and what it registered before finds them ended, with us and without."""
    if not getattr(iterator, "_persistent_workers", False) or not hasattr(iterator, "_pin_memory_thread") or iterator in _told:
        return
    if hasattr(type(iterator), "_clean_up_persistent_workers_atexit"):
        return  # newer torch does so itself
    _told.add(iterator)
    owner, held = os.getpid(), ref(iterator)

    def end() -> None:
        found = held()
        if found is None or os.getpid() != owner:
            return  # a forked child that ends by itself: the workers are its parent's
        try:
            for worker in found._workers:
                worker.terminate()
        except Exception as error:
            fault("exit_order.end", error)

    atexit.register(end)
