"""Imports torch for the library; if it is missing or too old, one clear error."""

from __future__ import annotations

from flatout.api.errors import RequirementError

__all__ = ["OLDEST_TORCH", "torch", "torch_is_at_least"]

OLDEST_TORCH = (2, 4)

try:
    import torch as torch
except ImportError as error:
    raise RequirementError("library.no-torch", detail=str(error)) from error


def torch_is_at_least(major: int, minor: int) -> bool:
    return tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) >= (major, minor)


if not torch_is_at_least(*OLDEST_TORCH):
    raise RequirementError("library.torch-too-old", found=torch.__version__, oldest=".".join(map(str, OLDEST_TORCH)))
