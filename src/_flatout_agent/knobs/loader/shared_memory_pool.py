"""Memory that a loader's workers and their receiver have shared since the fork, in blocks that are used again."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import sys
from typing import Any
from weakref import WeakValueDictionary

from _flatout_agent.core.fault_guard import fault

OF_A_WORKER = 1 << 30  # of address space; memory is taken when it is written to
OF_ALL = 16 << 30
LEDGER = 4096  # bytes at the start of a worker's part: how often each block was received
MOST_BLOCKS = LEDGER // 4
SMALLEST = 4096
MOST_COPIED = 16 << 20  # bytes; where nothing is pinned, mapping a larger tensor costs the receiver less than copying it
NO_RESERVE = 0x4000  # Linux's flag, which Python names only from 3.13 on


class Arena:
    """Of one iterator. The receiver copies out of it what was sent."""

    def __init__(self, torch: Any, workers: int, pin: bool) -> None:
        self.torch = torch
        self.pin = pin
        self.number = next(_numbers)
        self.size_of_a_part = min(OF_A_WORKER, OF_ALL // workers) // SMALLEST * SMALLEST
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | NO_RESERVE
        self.memory = mmap.mmap(-1, self.size_of_a_part * workers, flags=flags)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.received = memoryview(self.memory).cast("I")  # written by the receiver alone, so that nobody's count is lost
        self.taken = 0
        self._owner = os.getpid()

    def carries(self, size: int) -> bool:
        return self.pin or size <= MOST_COPIED

    def part_of(self, worker: int) -> Part:
        return Part(self.size_of_a_part * worker, self.size_of_a_part, self.received)

    def take(self, entry: int, offset: int, size: int, dtype: Any, shape: tuple[int, ...], pinned: bool) -> Any:
        tensor = self.copied(self.address + offset, size, dtype, shape, pinned)
        self.received[entry] = (self.received[entry] + 1) & 0xFFFFFFFF
        self.taken += 1
        return tensor

    def copied(self, source: Any, size: int, dtype: Any, shape: tuple[int, ...], pin: bool) -> Any:
        """Torch would copy with as many threads as there are cores, and wait for each beside workers that keep them busy."""
        tensor = self._empty(dtype, shape, pin)
        # A mode of the script's may have made something else of it.
        plain = type(tensor) is self.torch.Tensor and tensor.device.type == "cpu" and tensor.dtype is dtype
        if not plain or tensor.numel() * tensor.element_size() != size:
            raise RuntimeError(f"a tensor of {size} bytes was asked for, and {tensor!r} came")
        ctypes.memmove(tensor.data_ptr(), source, size)
        return tensor

    def _empty(self, dtype: Any, shape: tuple[int, ...], pin: bool) -> Any:
        if pin:
            try:
                return self.torch.empty(shape, dtype=dtype, device="cpu", pin_memory=True)
            except RuntimeError:  # no more such memory: torch's own pinning says so where the script expects it
                pass
        return self.torch.empty(shape, dtype=dtype, device="cpu")

    def __del__(self) -> None:
        """Processes that were forked meanwhile have it mapped still: its pages are given back all the same, by who made it."""
        try:
            if os.getpid() == self._owner:
                self.memory.madvise(mmap.MADV_REMOVE)
        except Exception:  # at the end of an interpreter anything may be gone
            pass


class Block:
    """A stretch of a worker's part. Free once nothing here refers to it and all that was sent of it was received."""

    def __init__(self, offset: int, entry: int) -> None:
        self.offset = offset
        self.entry = entry
        self.sent = 0
        self.storage: Any = None  # weakly

    def is_free(self, received: Any) -> bool:
        return (self.storage is None or bool(self.storage.expired())) and bool(received[self.entry] == self.sent)


class Part:
    """One worker's. Blocks are powers of two, of which only the pages that are written to take memory: sizes that grow from
    batch to batch find the blocks of those before."""

    def __init__(self, begin: int, size: int, received: Any) -> None:
        self._received = received
        self._next = begin + LEDGER
        self._end = begin + size
        self._first_entry = begin // 4
        self.blocks: dict[int, list[Block]] = {}  # by size

    def block(self, size: int) -> Block | None:
        """A free one, or None."""
        rounded = max(SMALLEST, 1 << (size - 1).bit_length())
        alike = self.blocks.setdefault(rounded, [])
        for block in alike:
            if block.is_free(self._received):
                return block
        count = sum(map(len, self.blocks.values()))
        if self._next + rounded > self._end or count == MOST_BLOCKS:
            return None
        block = Block(self._next, self._first_entry + count)
        self._next += rounded
        alike.append(block)
        return block


_numbers = itertools.count()
_arenas: WeakValueDictionary[int, Arena] = WeakValueDictionary()  # whoever receives holds them


def arena_of(number: int) -> Arena:
    return _arenas[number]


def arena_for(torch: Any, workers: int, pin: bool) -> Arena | None:
    """None where there is no such memory, or where address space itself is counted."""
    if not sys.platform.startswith("linux") or _counts_addresses():
        return None
    try:
        arena = Arena(torch, workers, pin)
    except (OSError, ValueError) as error:
        fault("arena", error)
        return None
    _arenas[arena.number] = arena
    return arena


def _counts_addresses() -> bool:
    import resource

    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        return True
    try:
        with open("/proc/sys/vm/overcommit_memory", encoding="ascii") as file:
            return file.read().strip() == "2"
    except OSError:
        return False
