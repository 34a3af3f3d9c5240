"""The order of the samples: preserved, resumed at a position, split over ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flatout.api.errors import LoaderError
from flatout.api.ranks import Ranks
from flatout.api.torch_part import torch


class Position:
    """Stands before a sampler and leaves out what was trained on before: the indices are drawn, the samples not fetched."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self._current: Iterator[Any] = iter(())

    def __iter__(self) -> Iterator[Any]:
        self._current = iter(self.inner)
        return self._current

    def pass_over(self, count: int) -> None:
        """Of the iterator that was just made: a loader draws its own seed first, as it did in the interrupted training."""
        for _ in range(count):
            next(self._current, None)

    def __len__(self) -> int:
        return len(self.inner)


def own_generators(loader: Any) -> list[Any]:
    """The loader's generator and its sampler's, where they were given; each once."""
    found: list[Any] = []
    parts = [loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)]
    parts.append(getattr(parts[-1], "sampler", None))
    for part in parts:
        generator = getattr(part, "generator", None)
        if isinstance(generator, torch.Generator) and all(generator is not other for other in found):
            found.append(generator)
    return found


def divided(loader: Any, ranks: Ranks) -> Any:
    """A batch sampler that gives this rank its share; the batch of each rank stays as large as it was."""
    data = torch.utils.data
    if isinstance(loader.sampler, data.distributed.DistributedSampler):
        return loader.batch_sampler  # divided by the script
    if type(loader.batch_sampler) is not data.BatchSampler:
        raise LoaderError("library.loader-not-divisible", part=type(loader.batch_sampler).__name__)
    kinds = {data.RandomSampler: True, data.SequentialSampler: False}
    if type(loader.sampler) not in kinds or getattr(loader.sampler, "replacement", False):
        raise LoaderError("library.loader-not-divisible", part=type(loader.sampler).__name__)
    share = data.distributed.DistributedSampler(
        loader.dataset,
        num_replicas=ranks.world_size,
        rank=ranks.rank,
        shuffle=kinds[type(loader.sampler)],
        drop_last=loader.drop_last,
    )
    return data.BatchSampler(share, loader.batch_size, loader.drop_last)
