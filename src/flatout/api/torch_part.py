"""The library's torch: the one that is installed, if it is new enough; else one sentence."""

from __future__ import annotations

from flatout.api.errors import RequirementError

__all__ = ["OLDEST_TORCH", "torch"]

OLDEST_TORCH = (2, 4)

try:
    import torch as torch
except ImportError as error:
    raise RequirementError("library.no-torch", detail=str(error)) from error


def is_new_enough(version: str) -> bool:
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2]) >= OLDEST_TORCH


if not is_new_enough(torch.__version__):
    raise RequirementError("library.torch-too-old", found=torch.__version__, oldest=".".join(map(str, OLDEST_TORCH)))
