"""What tensors, arrays and long lists of plain values hold, for a checksum: by value, not by who holds them."""

from __future__ import annotations

import ctypes
import marshal
from types import CodeType
from typing import Any, Iterator

ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
LONG = 32  # parts; of so many it is tried whether they are all plain
NESTED = 4
AT_ONCE = 8 << 20  # bytes: then other threads have their turn
READ_ONLY = 0x100  # PyBUF_READ

# By a prototype of ours: what a script may have set for its own calls of this function stays as it is.
_memory_at = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(
    ("PyMemoryView_FromMemory", ctypes.pythonapi)
)


class UnknownError(Exception):
    """It cannot be told whether this would be the same."""


class TooLargeError(UnknownError):
    """It could be told, but would take longer than what it saves."""


class Buffers:
    """Stretches of memory that are to be read once everything else is known."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._stretches: dict[tuple[int, int], Any] = {}
        self.bytes = 0

    def add(self, path: str, address: int, size: int, holder: Any) -> None:
        if size and (address, size) not in self._stretches:
            self.count(path, size)
            self._stretches[address, size] = holder  # alive until it was read

    def count(self, path: str, size: int) -> None:
        """So much was read, or is about to be."""
        self.bytes += size
        if self.bytes > self._most:
            raise TooLargeError(path)

    def checksums(self) -> list[int]:
        return [number for address, size in self._stretches for number in checksums_of(address, size)]


def checksums_of(address: int, size: int) -> Iterator[int]:
    """Python's own hash of bytes, with this run's key, which a forked worker has too: nothing else in the standard library
    reads as fast and tells as surely."""
    for start in range(0, size, AT_ONCE):
        yield hash(_memory_at(address + start, min(AT_ONCE, size - start), READ_ONLY))


def plain_bytes(values: Any) -> bytes | None:
    """A long container of plain values as bytes, at the speed of C; None where it is not all plain."""
    if not (
        _all_plain(list(values.values()) if isinstance(values, dict) else values)
        and (not isinstance(values, dict) or _all_plain(values))
    ):
        return None
    try:
        return marshal.dumps(values, 2)  # in this version equal values give equal bytes, whoever else refers to them
    except ValueError:
        return None


def _all_plain(values: Any, depth: int = NESTED) -> bool:
    kinds = set(map(type, values)) - ATOMS
    if not kinds:
        return True
    if not depth or not kinds <= {list, tuple}:
        return False
    return _all_plain([part for value in values if type(value) in (list, tuple) for part in value], depth - 1)


def tensor_told(torch: Any, path: str, tensor: Any, buffers: Buffers) -> tuple[Any, ...]:
    """Of a tensor all but its memory, which the buffers get; of shared memory where it lies."""
    plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized and not tensor.is_nested
    if not plain or hasattr(type(tensor), "__tensor_flatten__"):
        raise UnknownError(path)
    storage = tensor.untyped_storage()
    told = (
        str(tensor.dtype),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.storage_offset(),
        tensor.requires_grad,
        tensor.is_conj(),
        tensor.is_neg(),
        storage.nbytes(),
    )
    if tensor.is_shared():
        return (*told, "shared", storage.data_ptr())
    buffers.add(path, storage.data_ptr(), storage.nbytes(), storage)
    return told


def array_told(numpy: Any, path: str, array: Any, buffers: Buffers) -> tuple[Any, ...]:
    """Of an array all but its memory. A file that is mapped for all processes is the same for all."""
    if type(array) not in (numpy.ndarray, numpy.memmap) or array.dtype.hasobject:
        raise UnknownError(path)
    address, told = array.ctypes.data, (str(array.dtype.descr), array.shape, array.strides, array.flags.writeable)
    if type(array) is numpy.memmap and array.mode in ("r", "r+", "w+"):
        return (*told, "mapped", address)
    if array.flags.c_contiguous or array.flags.f_contiguous:
        buffers.add(path, address, array.nbytes, array)
        return told
    buffers.count(path, array.nbytes)
    copy = array.copy()
    buffers.add(path, copy.ctypes.data, copy.nbytes, copy)
    return told


def code_number(code: CodeType, numbers: dict[CodeType, int]) -> int:
    """Equal code has one number."""
    return numbers.setdefault(code, len(numbers))
