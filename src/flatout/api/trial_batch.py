"""A batch of any size, made by repeating the samples of a given one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from _flatout_agent.timeline.samples_in_batch import size_of
from flatout.api import refusals


def first_batch(torch: Any, sample_data: Any) -> Any:
    """The batch itself, or the first one of a loader; refused where there is no tensor with samples in it."""
    if isinstance(sample_data, torch.utils.data.DataLoader):
        sample_data = next(iter(sample_data), None)
    if size_of(sample_data) < 1:
        raise refusals.ArgumentTypeError(
            "error.argument-type",
            argument="sample_data",
            wanted="Tensor | tuple | dict | DataLoader",
            found=type(sample_data).__name__,
        )
    return sample_data


def of_size(torch: Any, batch: Any, size: int, device: Any) -> Any:
    """What has a sample in each row gets `size` rows; everything else stays. On the device, as a loop would have it."""
    rows = size_of(batch)
    index = torch.arange(size) % rows

    def changed(part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            grows = part.dim() > 0 and part.shape[0] == rows
            return (part.index_select(0, index.to(part.device)) if grows else part).to(device)
        if isinstance(part, Mapping):
            return {name: changed(value) for name, value in part.items()}
        if isinstance(part, list | tuple):
            return tuple(changed(value) for value in part)
        return part

    return changed(batch)


def split(batch: Any) -> tuple[Any, Any]:
    """Inputs and target as loops unpack them: (inputs, target), (inputs,), a dict, or the inputs alone."""
    if isinstance(batch, tuple):
        return batch[0], batch[1] if len(batch) > 1 else None
    return batch, None
