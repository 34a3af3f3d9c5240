"""How a batch comes from a worker of ours: through memory that both have had since the fork.

Torch sends every tensor as a file of its own. It is made, mapped and filled page by page on either side, and its descriptor is
asked for over a socket, with a handshake in Python: half a millisecond a batch in which the thread that pins holds the lock
that the training loop needs to launch. Here the worker collates into a block of the shared memory and sends where it lies;
the receiver copies it out, into pinned memory where batches are pinned, and says in the same memory that the block is free.

What does not fit (views, subclasses, no free block) goes torch's way, tensor by tensor.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import itertools
import mmap
import pickle
import sys
import threading
from multiprocessing.reduction import ForkingPickler
from typing import Any, Callable, Iterator
from weakref import finalize

from _flatout_agent.guard import fault

OF_A_WORKER = 512 << 20  # of address space; memory is taken when it is written to
OF_ALL = 8 << 30
LEDGER = 4096  # bytes at the start of a worker's part: how often each block was received
MOST_BLOCKS = LEDGER // 4
PAGE = 4096
INLINE = 1024  # bytes: so little goes in the message itself
MOST_COPIED = 16 << 20  # bytes; where nothing is pinned, mapping a larger tensor costs the receiver less than copying it
TOO_LARGE = 4  # times what is asked for: a block is not wasted on less
NO_RESERVE = 0x4000  # Linux's flag, which Python names only from 3.13 on


class Arena:
    """Memory of one iterator and its workers. The receiver's side: what was sent is copied out."""

    def __init__(self, torch: Any, workers: int, pin: bool) -> None:
        self.torch = torch
        self.pin = pin
        self.number = next(_numbers)
        self.part = min(OF_A_WORKER, OF_ALL // workers) // PAGE * PAGE
        self.memory = mmap.mmap(-1, self.part * workers, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | NO_RESERVE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.received = memoryview(self.memory).cast("I")  # written by the receiver alone, so that nobody's count is lost
        self.taken = 0

    def goes_with(self, iterator: Any) -> None:
        """They end together: torch's iterators stop the thread that receives before they are gone."""
        finalize(iterator, _arenas.pop, self.number, None).atexit = False
        iterator._flatout_arena = self

    def carries(self, size: int) -> bool:
        return self.pin or size <= MOST_COPIED

    def take(self, entry: int, offset: int, dtype: Any, shape: tuple[int, ...]) -> Any:
        tensor = self.torch.empty(shape, dtype=dtype, device="cpu", pin_memory=self.pin)
        # Torch would copy with as many threads as there are cores, and wait for each beside workers that keep the cores busy.
        ctypes.memmove(tensor.data_ptr(), self.address + offset, tensor.numel() * tensor.element_size())
        self.received[entry] = (self.received[entry] + 1) & 0xFFFFFFFF
        self.taken += 1
        return tensor


_numbers = itertools.count()
_arenas: dict[int, Arena] = {}


def received(number: int, *parcel: Any) -> Any:
    return _arenas[number].take(*parcel)


def received_inline(torch_dtype: Any, shape: tuple[int, ...], data: bytes) -> Any:
    torch = sys.modules["torch"]
    return torch.frombuffer(bytearray(data), dtype=torch_dtype).view(shape).clone()  # a clone lies as torch aligns


class Block:
    """A stretch of a worker's part. Free once nothing here refers to it and all that was sent of it was received."""

    def __init__(self, offset: int, size: int, entry: int) -> None:
        self.offset = offset
        self.size = size
        self.entry = entry
        self.sent = 0
        self.storage: Any = None  # weakly

    def is_free(self, received: Any) -> bool:
        return (self.storage is None or bool(self.storage.expired())) and bool(received[self.entry] == self.sent)


class Packer:
    """The sender's side, in one worker."""

    def __init__(self, arena: Arena, worker: int) -> None:
        from torch.multiprocessing import reductions

        self._arena = arena
        self._torch = arena.torch
        self._reductions = reductions
        self._begin = arena.part * worker
        self._next = self._begin + LEDGER
        self._blocks: list[Block] = []
        self._held: dict[int, Block] = {}  # by the address of what was collated there
        self._lock = threading.Lock()  # batches are pickled in a thread of the queue's

    @contextlib.contextmanager
    def collating(self) -> Iterator[None]:
        """Torch's collation asks for shared memory: it gets ours."""
        storages = self._torch.UntypedStorage
        original = storages._new_shared  # of a base class

        def _new_shared(kind: Any, size: int, *, device: Any = "cpu") -> Any:
            storage = self._storage(size) if str(device) == "cpu" else None
            return original(size, device=device) if storage is None else storage

        storages._new_shared = classmethod(_new_shared)
        try:
            yield
        finally:
            del storages._new_shared

    def _storage(self, size: int) -> Any:
        if size <= INLINE or not self._arena.carries(size):
            return None
        with self._lock:
            block = self._block(size)
            if block is None:
                return None
            view = self._torch.frombuffer(self._arena.memory, dtype=self._torch.uint8, count=size, offset=block.offset)
            storage = view.untyped_storage()
            block.storage = self._reductions.StorageWeakRef(storage)
            self._held[storage.data_ptr()] = block
            return storage

    def _block(self, size: int) -> Block | None:
        received = self._arena.received
        fitting = (block for block in self._blocks if size <= block.size <= TOO_LARGE * max(size, PAGE))
        free = [block for block in fitting if block.is_free(received)]
        if free:
            return min(free, key=lambda block: block.size)
        taken = -(-size // PAGE) * PAGE
        if self._next + taken > self._begin + self._arena.part or len(self._blocks) == MOST_BLOCKS:
            return None
        block = Block(self._next, taken, self._begin // 4 + len(self._blocks))
        self._next += taken
        self._blocks.append(block)
        return block

    def pack(self, batch: Any) -> bytes:
        seen: set[int] = set()

        def reduce(tensor: Any) -> Any:
            return self._reduce(tensor, seen) or self._reductions.reduce_tensor(tensor)

        buffer = io.BytesIO()
        pickler = ForkingPickler(buffer, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = {**pickler.dispatch_table, self._torch.Tensor: reduce}
        pickler.dump(batch)
        return buffer.getvalue()

    def _reduce(self, tensor: Any, seen: set[int]) -> tuple[Any, ...] | None:
        """A plain tensor that is all of its storage. Two on one storage must stay so: such a batch goes torch's way."""
        torch = self._torch
        plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
        if not plain or tensor.requires_grad or tensor.is_conj() or tensor.is_neg() or not tensor.is_contiguous():
            return None
        storage = tensor.untyped_storage()
        size = tensor.numel() * tensor.element_size()
        if storage._cdata in seen:
            raise SharedStorageError
        seen.add(storage._cdata)
        if not size or size != storage.nbytes():
            return None
        what = (tensor.dtype, tuple(tensor.shape))
        if size <= INLINE:
            return received_inline, (*what, ctypes.string_at(tensor.data_ptr(), size))
        if not self._arena.carries(size):
            return None
        with self._lock:
            block = self._held.get(tensor.data_ptr())
            if block is None or block.storage is None or block.storage.cdata != storage._cdata:
                block = self._block(size)
                if block is None:
                    return None
                block.storage = None
                ctypes.memmove(self._arena.address + block.offset, tensor.data_ptr(), size)
            block.sent = (block.sent + 1) & 0xFFFFFFFF
        return received, (self._arena.number, block.entry, block.offset, *what)


class SharedStorageError(Exception):
    """Two tensors of a batch lie on one storage."""


class Parcel:
    """What a worker puts into its queue; unpickled it is the batch itself."""

    def __init__(self, packer: Packer, batch: Any) -> None:
        self._packer = packer
        self._batch = batch

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            return pickle.loads, (self._packer.pack(self._batch),)
        except Exception:
            return _itself, (self._batch,)


def _itself(batch: Any) -> Any:
    return batch


class Packing:
    """The script's collation, in a worker of ours."""

    def __init__(self, arena: Arena, collate: Callable[[Any], Any]) -> None:
        self._arena = arena
        self._collate = collate
        self._packer: Packer | None = None

    def __call__(self, samples: Any) -> Any:
        if self._packer is None:
            from torch.utils.data import get_worker_info

            self._packer = Packer(self._arena, get_worker_info().id)
        with self._packer.collating():
            batch = self._collate(samples)
        return Parcel(self._packer, batch)


def carrying(torch: Any, loader: Any, make: Callable[[], Any], start_method: str) -> Any:
    """What `make` makes of this loader: an iterator of torch's whose workers send through an arena, where there can be one."""
    arena = _arena(torch, loader, start_method)
    if arena is None:
        return make()
    collate = loader.collate_fn
    loader.collate_fn = Packing(arena, collate)
    _arenas[arena.number] = arena
    try:
        iterator = make()
    except BaseException:
        del _arenas[arena.number]
        raise
    finally:
        loader.collate_fn = collate
    iterator._collate_fn = collate  # the workers have ours by now
    arena.goes_with(iterator)
    return iterator


def _arena(torch: Any, loader: Any, start_method: str) -> Arena | None:
    if start_method != "fork" or not sys.platform.startswith("linux"):
        return None
    try:
        return Arena(torch, loader.num_workers, pin=bool(loader.pin_memory) and torch.cuda.is_available())
    except (OSError, ValueError) as error:
        fault("parcels.arena", error)
        return None
