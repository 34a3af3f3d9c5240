"""A batch of another size out of kept ones: what a larger batch costs, without starting the script again.

Every tensor whose first dimension counts the samples is put together from the kept batches and cut to the wanted size.
Where a batch holds anything that does not grow with it in a way that can be seen, it cannot be done.
"""

from __future__ import annotations

from typing import Any

from _flatout_agent.timeline.samples_in_batch import size_of


class CannotComposeError(Exception):
    """The batches differ in their shapes, or are no plain containers."""


def composed(torch: Any, batches: list[Any], size: int) -> Any:
    """A batch with `size` samples of the same structure as these batches of plain tensors."""
    sizes = [size_of(batch) for batch in batches]
    if not sizes or not sizes[0] or sizes[0] < max(sizes):
        raise CannotComposeError
    whole = [batch for batch in batches if size_of(batch) == sizes[0]]  # the last of an epoch may be smaller
    return _together(torch, whole, sizes[0], size)


def _together(torch: Any, parts: list[Any], each: int, size: int) -> Any:
    first = parts[0]
    if isinstance(first, torch.Tensor):
        return _tensors(torch, parts, each, size)
    if isinstance(first, dict):
        made = {key: _together(torch, [part[key] for part in parts], each, size) for key in first}
        return made if type(first) is dict else type(first)(made)
    if isinstance(first, (list, tuple)):
        if len(first) == each and not any(isinstance(one, (torch.Tensor, list, tuple, dict)) for one in first):
            entries = [one for part in parts for one in part]
            return type(first)((entries * (size // len(entries) + 1))[:size])
        made_parts = [_together(torch, [part[place] for part in parts], each, size) for place in range(len(first))]
        return type(first)(*made_parts) if hasattr(first, "_fields") else type(first)(made_parts)
    if isinstance(first, (int, float, str, bytes, type(None))):
        return first
    raise CannotComposeError


def _tensors(torch: Any, parts: list[Any], each: int, size: int) -> Any:
    first = parts[0]
    if not first.ndim:
        return first
    if type(first) is not torch.Tensor or any(part.shape != first.shape for part in parts) or first.shape[0] != each:
        raise CannotComposeError
    wanted = -(-size // each)
    chosen = [parts[number % len(parts)] for number in range(wanted)]
    made = torch.cat(chosen)[:size].contiguous()
    return made.pin_memory() if first.device.type == "cpu" and first.is_pinned() else made
