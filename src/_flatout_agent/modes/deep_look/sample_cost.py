"""What a sample costs: time inside the dataset and the collate function, in a loader's workers and in the training process."""

from __future__ import annotations

import os
import threading
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any, Callable

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.patches import Patches, dress
from _flatout_agent.modes.deep_look.stack_sampling import Sampler

MOST_WORKERS = 16  # of a run: a script that starts workers anew every epoch must not fill the folder
COUNT_FILE = "deep-workers"  # one byte for each worker that looked


class FetchMeter:
    """Counts the samples that are fetched in this process, and their time."""

    def __init__(self, processor_time: Callable[[], int]) -> None:
        self._processor_time = processor_time
        self._patches = Patches()
        self._depth = 0
        self.thread = 0  # that fetched
        self.samples = 0
        self.wall_ns = 0
        self.processor_ns = 0
        self.dataset = ""
        self.source = ""  # the method that gives a sample
        self.paused = False

    def put_on(self) -> None:
        from torch.utils.data._utils import fetch

        for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
            self._patches.put(kind, "fetch", self._metered(kind.fetch))

    def take_off(self) -> None:
        self._patches.take_off()

    def _metered(self, original: Any) -> Any:
        def fetch(fetcher: Any, index: Any) -> Any:
            if self.paused or self._depth:
                return original(fetcher, index)
            self._depth = 1
            began, worked = perf_counter_ns(), self._processor_time()
            try:
                batch = original(fetcher, index)
            finally:
                self._depth = 0
            try:
                self.wall_ns += perf_counter_ns() - began
                self.processor_ns += self._processor_time() - worked
                self.samples += len(index) if isinstance(index, (list, tuple)) else 1
                self.thread = self.thread or threading.get_ident()
                self.dataset = self.dataset or type(fetcher.dataset).__name__
                self.source = self.source or ("__iter__" if hasattr(fetcher, "dataset_iter") else "__getitem__")
            except Exception as error:
                fault("deep.fetch", error)
            return batch

        return dress(fetch, original)

    def told(self) -> dict[str, Any]:
        samples = max(1, self.samples)
        return {
            "dataset": self.dataset,
            "source": self.source,
            "fetched": self.samples,
            "per_sample_s": self.processor_ns / samples / 1e9,
            "wall_per_sample_s": self.wall_ns / samples / 1e9,
        }


class FetchLook:
    """One process's look at its own fetching: the meter, the sampler, and one line at the end."""

    def __init__(self, torch_folder: str, write: Callable[..., None], worker: bool) -> None:
        self._torch_folder = torch_folder
        self._write = write
        self._worker = worker
        # A worker's own threads work for its samples; in the training process others do other things.
        self._meter = FetchMeter(process_time_ns if worker else thread_time_ns)
        self._sampler: Sampler | None = None
        self._lock = threading.Lock()
        self.told = False

    def begin(self) -> None:
        self._meter.put_on()
        if self._worker:
            self._sample(threading.get_ident())

    def _sample(self, thread: int) -> None:
        self._sampler = Sampler(thread, self._torch_folder)
        self._sampler.after = self.end if self._worker else None
        self._sampler.start()

    @property
    def sampling(self) -> bool:
        return self._sampler is not None and not self.told

    def at_step(self) -> None:
        """In the training process: samples where batches are fetched in it; ends when the sampler has seen enough."""
        if self.told:
            return
        if self._sampler is None:
            if self._meter.thread:
                self._sample(self._meter.thread)
        elif self._sampler.over:
            self.end()

    def pause(self, paused: bool) -> None:
        """While another look slows the process down."""
        self._meter.paused = paused
        if self._sampler is not None:
            self._sampler.paused = paused

    def end(self) -> None:
        """Once; from whichever thread comes first."""
        with self._lock:
            if self.told:
                return
            self.told = True
        if self._sampler is not None:
            self._sampler.stop()
        self._meter.take_off()
        if self._meter.samples:
            sampled = self._sampler.told() if self._sampler is not None else {"lines": [], "samples": 0}
            self._write(look="worker", worker=self._worker, **self._meter.told(), **sampled)


def watch_workers(torch_folder: str, run_dir: str, write: Callable[..., None], patches: Patches) -> None:
    """Every worker of a loader, forked or spawned, looks at itself."""
    from torch.utils.data._utils import worker

    original = worker._worker_loop

    def _worker_loop(*args: Any, **kwargs: Any) -> Any:
        look = None
        try:
            if has_room(run_dir):
                look = FetchLook(torch_folder, write, worker=True)
                look.begin()
        except Exception as error:
            fault("deep.worker", error)
        try:
            return original(*args, **kwargs)
        finally:
            try:
                if look is not None:
                    look.end()
            except Exception as error:
                fault("deep.worker", error)

    patches.put(worker, "_worker_loop", dress(_worker_loop, original))


def has_room(run_dir: str) -> bool:
    descriptor = os.open(os.path.join(run_dir, COUNT_FILE), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, b".")
        return os.fstat(descriptor).st_size <= MOST_WORKERS
    finally:
        os.close(descriptor)
