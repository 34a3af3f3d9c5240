"""How many batches of a loader lie ready: fetched by its workers, and not yet asked for."""

from __future__ import annotations

from typing import Any


def queued(iterator: Any) -> int | None:
    """None where nothing is fetched ahead, an epoch is about to end, so that fewer are fetched, or a system does not tell
    (macOS has no count for queues between processes)."""
    if not hasattr(iterator, "_workers"):
        return None
    try:
        if iterator._send_idx - iterator._rcvd_idx < iterator._prefetch_factor * iterator._num_workers:
            return None
        early = sum(len(task) > 1 for task in iterator._task_info.values())  # came before their turn
        queues = {id(queue): queue for queue in (iterator._data_queue, iterator._worker_result_queue)}
        return early + sum(int(queue.qsize()) for queue in queues.values())
    except Exception:
        return None
