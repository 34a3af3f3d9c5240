"""The state of all random generators of a training, as tensors, so that a checkpoint needs no pickle."""

from __future__ import annotations

import random
import struct
import sys
from typing import Any

from flatout.api.torch_part import torch

_WORDS = 625  # of Python's Mersenne twister, its position included


def captured() -> dict[str, Any]:
    """torch's on the processor and on every card in use, Python's, and numpy's where it is loaded."""
    state = {"torch": torch.get_rng_state(), "python": _python_out()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.stack(torch.cuda.get_rng_state_all())
    if "numpy" in sys.modules:
        state["numpy"] = _numpy_out()
    return state


def restore(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    _python_in(state["python"])
    if "cuda" in state and torch.cuda.is_available():
        for index in range(min(len(state["cuda"]), torch.cuda.device_count())):
            torch.cuda.set_rng_state(state["cuda"][index], index)
    if "numpy" in state:
        _numpy_in(state["numpy"])


def flattened(state: dict[str, Any]) -> Any:
    """One byte tensor, of the same size on every rank."""
    return torch.cat([_bytes(state[name]) for name in sorted(state)])


def unflattened(flat: Any, like: dict[str, Any]) -> dict[str, Any]:
    found, place = {}, 0
    for name in sorted(like):
        size = _bytes(like[name]).numel()
        part = flat[place : place + size].clone()
        found[name] = part.view(like[name].dtype).view(like[name].shape)
        place += size
    return found


def _bytes(tensor: Any) -> Any:
    return tensor.contiguous().view(torch.uint8).flatten()


# A float as the whole number with the same bits, so that one tensor of whole numbers holds everything.
def _bits(number: float | None) -> list[int]:
    return [0, 0] if number is None else [1, struct.unpack("<q", struct.pack("<d", number))[0]]


def _number(has: int, bits: int) -> float | None:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0]) if has else None


def _python_out() -> Any:
    version, words, gauss = random.getstate()
    return torch.tensor([version, *words, *_bits(gauss)], dtype=torch.int64)


def _python_in(packed: Any) -> None:
    version, *rest = packed.tolist()
    random.setstate((version, tuple(rest[:_WORDS]), _number(*rest[_WORDS:])))


def _numpy_out() -> Any:
    kind, words, position, has_gauss, gauss = sys.modules["numpy"].random.get_state()
    if kind != "MT19937":
        return torch.zeros(0, dtype=torch.int64)
    return torch.tensor([*map(int, words), int(position), *_bits(gauss if has_gauss else None)], dtype=torch.int64)


def _numpy_in(packed: Any) -> None:
    import importlib

    numbers = packed.tolist()
    if numbers:
        numpy = importlib.import_module("numpy")
        gauss = _number(*numbers[-2:])
        words = numpy.array(numbers[:-3], dtype=numpy.uint32)
        numpy.random.set_state(("MT19937", words, numbers[-3], int(gauss is not None), gauss or 0.0))
