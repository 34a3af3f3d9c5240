"""`OptimizedDataLoader`: the user's DataLoader with faster loading, the same order, and resume in the middle of an epoch.

On a card the batches come to the device on a stream of their own. With workers the next batch is copied while this one is
trained on; without them a look ahead would draw the next batch's random numbers before this step's, so it is copied when
it is asked for. On the processor nothing stands between the loop and the loader's own iterator but a count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, cast

from _flatout_agent.knobs.nested_tensors import changed_tensors, tensors_in
from _flatout_agent.timeline.samples_in_batch import size_of
from flatout.api import random_state, sampling
from flatout.api.errors import LoaderError
from flatout.api.loader_settings import Settings, settle
from flatout.api.notes import sentence
from flatout.api.ranks import Ranks
from flatout.api.shared_memory_loader import carrying_loader
from flatout.api.torch_part import torch
from flatout.api.training_config import TrainingConfig

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # the checker's own: where torch's types are not looked at, a batch is Any

    Batch = TypeVar("Batch", default=Any)
else:
    from typing import TypeVar

    Batch = TypeVar("Batch")

_END = object()


class OptimizedDataLoader(Generic[Batch]):
    """Iterate it as the loader it was made of. `epoch` counts whole epochs, `position` the batches given out in this one."""

    def __init__(self, loader: Any, wanted: TrainingConfig, device: Any, ranks: Ranks = Ranks()) -> None:  # noqa: B008
        check_loader(loader)
        self.device = device
        self.original = loader
        self.epoch = 0
        self.position = 0
        self.samples = 0  # in the batch given out last, where `counts_samples`
        self.counts_samples = False
        self.reasons: dict[str, str] = {}
        self._order: sampling.Position | None = None
        self._settings = settle_or_keep(loader, wanted, device, self.reasons)
        self._loader = self._built(ranks)
        self._generators = sampling.own_generators(loader)
        self._start: dict[str, Any] = {}
        self._resume: dict[str, Any] | None = None
        self._stream: Any = None
        self._closed = False

    # -- as a loader --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Batch]:
        if self._closed:
            raise LoaderError("library.loader-closed")
        batches = self._begun()
        if self._settings.ahead:
            batches = self._ahead(batches) if self._settings.workers else map(self._arrived, map(self._copied, batches))
        elif self.device.type != "cpu":
            batches = map(self._moved, batches)
        for batch in batches:
            self.position += 1
            if self.counts_samples:
                self.samples = size_of(batch)
            yield cast("Batch", batch)
        self.epoch += 1
        self.position = 0

    @property
    def dataset(self) -> Any:
        return self.original.dataset

    @property
    def batch_size(self) -> int | None:
        return cast("int | None", self.original.batch_size)

    @property
    def num_workers(self) -> int:
        return self._settings.workers

    @property
    def settings(self) -> Settings:
        return self._settings

    def close(self) -> None:
        """Workers end; iterating again is an error."""
        self._closed = True
        iterator = getattr(self._loader, "_iterator", None)
        if iterator is not None and hasattr(iterator, "_shutdown_workers"):
            iterator._shutdown_workers()
            self._loader._iterator = None

    # -- made ---------------------------------------------------------------------------------------------------------

    def _built(self, ranks: Ranks) -> Any:
        """A plain DataLoader with everything of the user's but how it fetches. A subclass stays what it is."""
        loader, settings = self.original, self._settings
        if type(loader) is not torch.utils.data.DataLoader or _is_iterable(loader):
            if ranks.world_size > 1:
                raise LoaderError("library.loader-not-divisible", part=type(loader.dataset).__name__)
            return loader
        options: dict[str, Any] = {"persistent_workers": settings.persistent, "prefetch_factor": settings.prefetch}
        if hasattr(loader, "in_order"):
            options["in_order"] = loader.in_order
        if loader.batch_sampler is None:
            if ranks.world_size > 1:
                raise LoaderError("library.loader-not-divisible", part="batch_size=None")
            self._order = sampling.Position(loader.sampler)
            options.update(batch_size=None, sampler=self._order)
        else:
            batches = loader.batch_sampler if ranks.world_size == 1 else sampling.divided(loader, ranks)
            self._order = sampling.Position(batches)
            options["batch_sampler"] = self._order
        return carrying_loader()(
            loader.dataset,
            num_workers=settings.workers,
            collate_fn=loader.collate_fn,
            pin_memory=settings.pin,
            timeout=loader.timeout if settings.workers else 0,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context if settings.workers else None,
            generator=loader.generator,
            **options,
        )

    # -- where we are -------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The epoch, the position in it, and the generators as the epoch found them: the order follows from those."""
        start = self._start if self.position else {}
        return {"epoch": self.epoch, "position": self.position, "start": start}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.position = int(state["epoch"]), int(state["position"])
        self._resume = state if self.position else None

    def _begun(self) -> Iterator[Any]:
        set_epoch = getattr(getattr(getattr(self._order, "inner", None), "sampler", None), "set_epoch", None)
        if set_epoch is not None:
            set_epoch(self.epoch)
        resume, self._resume = self._resume, None
        if resume is None:
            self.position = 0
            self._start = self._generators_now()
            return iter(self._loader)
        now = random_state.captured()
        self._start = resume["start"]
        random_state.restore(self._start["global"])
        for generator, state in zip(self._generators, self._start["own"], strict=False):
            generator.set_state(state)
        batches = self._replayed(resume["position"])
        random_state.restore(now)
        return batches

    def _replayed(self, position: int) -> Iterator[Any]:
        """Without workers the indices alone are passed over; workers draw for themselves, so they fetch once more."""
        batches: Iterator[Any] = iter(self._loader)
        if self._order is not None and not self._settings.workers:
            self._order.pass_over(position)
            return batches
        for _ in range(position):
            next(batches, None)
        return batches

    def _generators_now(self) -> dict[str, Any]:
        return {"global": random_state.captured(), "own": [generator.get_state() for generator in self._generators]}

    # -- to the device ------------------------------------------------------------------------------------------------

    def _ahead(self, batches: Iterator[Any]) -> Iterator[Any]:
        following = self._copied(next(batches, _END))
        while following is not _END:
            current = self._arrived(following)
            following = self._copied(next(batches, _END))
            yield current

    def _moved(self, batch: Any) -> Any:
        device = self.device
        return changed_tensors(torch, batch, lambda tensor: tensor.to(device, non_blocking=True))

    def _copied(self, batch: Any) -> Any:
        """On its way, on our stream. A tensor that lies in ordinary memory is copied all the same, as torch does it."""
        if batch is _END:
            return batch
        if self._stream is None:
            self._stream = torch.cuda.Stream(self.device)
        with torch.cuda.stream(self._stream):
            return self._moved(batch)

    def _arrived(self, batch: Any) -> Any:
        """The training's stream waits for the copy, the host does not; its memory stays until the training is done with it."""
        current = torch.cuda.current_stream(self.device)
        current.wait_stream(self._stream)
        for tensor in tensors_in(torch, batch):
            if tensor.is_cuda:
                tensor.record_stream(current)
        return batch


def check_loader(loader: Any) -> None:
    if isinstance(loader, OptimizedDataLoader):
        raise LoaderError("library.loader-twice")
    if not isinstance(loader, torch.utils.data.DataLoader):
        raise LoaderError("library.loader-type", found=type(loader).__name__)


def settle_or_keep(loader: Any, wanted: TrainingConfig, device: Any, reasons: dict[str, str]) -> Settings:
    ahead = device.type == "cuda" and wanted.device_prefetch is not False
    kept = Settings(loader.num_workers, loader.pin_memory, loader.persistent_workers, loader.prefetch_factor, ahead)
    if _is_iterable(loader):
        reasons["loader"] = sentence("library.loader-iterable", name=type(loader.dataset).__name__)
        return kept
    if type(loader) is not torch.utils.data.DataLoader:
        reasons["loader"] = sentence("library.loader-subclass", name=type(loader).__name__)
        return kept
    settings = settle(loader, wanted, device)
    reasons.update(settings.reasons)
    return settings


def _is_iterable(loader: Any) -> bool:
    return isinstance(loader.dataset, torch.utils.data.IterableDataset)
