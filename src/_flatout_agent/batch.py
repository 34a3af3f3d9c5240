"""How many samples a batch holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEPTH = 4  # containers inside containers that are looked into


def size_of(batch: Any, depth: int = DEPTH) -> int:
    """Length of the first dimension of the first array found; 0 where there is none."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 0
    if depth == 0:
        return 0
    if not isinstance(batch, (list, tuple)):  # first, because asking for an abstract class is slow
        # A dataclass, a PyG batch, a user's own class: its attributes are as good as a mapping.
        batch = (batch if isinstance(batch, Mapping) else getattr(batch, "__dict__", {})).values()
    for part in batch:
        size = size_of(part, depth - 1)
        if size:
            return size
    return 0
