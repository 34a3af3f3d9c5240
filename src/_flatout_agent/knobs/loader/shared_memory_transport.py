"""How a batch comes from a worker of ours: through memory that both have had since the fork.

Torch sends every tensor as a file of its own. It is made, mapped and filled page by page on either side, and its descriptor is
asked for over a socket, with a handshake in Python: half a millisecond a batch in which the thread that pins holds the lock
that the training loop needs to launch. Here the worker collates into a block of the shared memory and sends where it lies;
the receiver copies it out, into pinned memory where batches are pinned, and says in the same memory that the block is free.

What does not fit (views, subclasses, tensors that share a storage, no free block) goes torch's way, tensor by tensor. Nothing
is counted as sent before the whole batch is known: what was begun twice would be received once.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import itertools
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, Callable, Iterator

from _flatout_agent.knobs.loader.shared_memory_pool import Arena, Block, arena_for, arena_of

INLINE = 1024  # bytes: so little goes in the message itself


class TorchsWayError(Exception):
    """This batch is torch's to send."""


# --- the receiver ---------------------------------------------------------------------------------------------------

_opening = threading.local()


def opened(message: bytes, tensors: list[Any]) -> Any:
    """The batch, its tensors put where they were."""
    outer = getattr(_opening, "tensors", None)
    _opening.tensors = tensors
    try:
        return ForkingPickler.loads(message)
    finally:
        _opening.tensors = outer


def tensor_at(place: int) -> Any:
    return _opening.tensors[place]


def received(number: int, *parcel: Any) -> Any:
    return arena_of(number).take(*parcel)


def received_inline(number: int, dtype: Any, shape: tuple[int, ...], data: bytes) -> Any:
    return arena_of(number).copied(data, len(data), dtype, shape, pin=False)


# --- the sender -----------------------------------------------------------------------------------------------------


class Collecting(ForkingPickler):
    """A batch without its tensors, which are collected. The protocol is the queue's: with others, arrays arrive otherwise."""

    def __init__(self, torch: Any, buffer: io.BytesIO) -> None:
        super().__init__(buffer)
        self._tensor = torch.Tensor
        self._storages = (torch.UntypedStorage, torch.TypedStorage)
        self.tensors: list[Any] = []

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, self._storages):
            raise TorchsWayError
        if not isinstance(thing, self._tensor):
            return NotImplemented
        self.tensors.append(thing)
        return tensor_at, (len(self.tensors) - 1,)


class Sent:
    """In the place of a tensor that goes our way."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._reduced = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


class Packer:
    """In one worker: the blocks of its part of the arena, and what is sent in them."""

    def __init__(self, arena: Arena, worker: int) -> None:
        from torch.multiprocessing import reductions

        self._arena = arena
        self._torch = arena.torch
        self._weakly = reductions.StorageWeakRef
        self._part = arena.part_of(worker)
        self._held: dict[int, Block] = {}  # by the address of what was collated there
        self._lock = threading.Lock()  # batches are pickled in a thread of the queue's

    @contextlib.contextmanager
    def collating(self) -> Iterator[None]:
        """Torch's collation asks for shared memory: it gets ours."""
        storages = self._torch.UntypedStorage
        own = vars(storages).get("_new_shared")
        original = storages._new_shared

        def _new_shared(kind: Any, size: int, *, device: Any = "cpu") -> Any:
            storage = self._storage(size) if str(device) == "cpu" else None
            return original(size, device=device) if storage is None else storage

        storages._new_shared = classmethod(_new_shared)
        try:
            yield
        finally:
            if own is None:
                del storages._new_shared
            else:
                storages._new_shared = own

    def _storage(self, size: int) -> Any:
        if size <= INLINE:
            return self._torch.UntypedStorage(size)  # no file for what goes in the message
        if not self._arena.carries(size):
            return None
        with self._lock:
            block = self._part.block(size)
            if block is None:
                return None
            view = self._torch.frombuffer(self._arena.memory, dtype=self._torch.uint8, count=size, offset=block.offset)
            storage = view.untyped_storage()
            block.storage = self._weakly(storage)
            self._held[storage.data_ptr()] = block
            return storage

    def pack(self, batch: Any) -> tuple[bytes, list[Any]]:
        buffer = io.BytesIO()
        collecting = Collecting(self._torch, buffer)
        collecting.dump(batch)
        tensors = collecting.tensors
        times = Counter(map(self._storage_of, tensors))
        pinned = set(map(id, pinned_by_torch(self._torch, batch))) if self._arena.pin else set()
        goes = [times[self._storage_of(tensor)] == 1 and self._is_plain(tensor) for tensor in tensors]
        sent = [
            self._sent(tensor, id(tensor) in pinned) or tensor if ours else tensor
            for tensor, ours in zip(tensors, goes)  # noqa: B905
        ]
        return buffer.getvalue(), sent

    def _storage_of(self, tensor: Any) -> int:
        if tensor.layout is not self._torch.strided or tensor.is_nested or hasattr(type(tensor), "__tensor_flatten__"):
            raise TorchsWayError  # what lies on one storage with another cannot be told
        return int(tensor.untyped_storage()._cdata)

    def _is_plain(self, tensor: Any) -> bool:
        """All of a storage that is nobody else's, as `torch.empty` would make it."""
        if type(tensor) is not self._torch.Tensor or tensor.device.type != "cpu" or tensor.requires_grad:
            return False
        if tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor():
            return False
        if hasattr(tensor, "has_names") and tensor.has_names():  # of older torch
            return False
        storage, size = tensor.untyped_storage(), tensor.numel() * tensor.element_size()
        return 0 < size == storage.nbytes() and tensor.stride() == rows_first(tensor.shape) and not storage.is_shared()

    def _sent(self, tensor: Any, pinned: bool) -> Sent | None:
        size, what = tensor.numel() * tensor.element_size(), (tensor.dtype, tuple(tensor.shape))
        if size <= INLINE:
            return Sent(received_inline, (self._arena.number, *what, ctypes.string_at(tensor.data_ptr(), size)))
        if not self._arena.carries(size):
            return None
        with self._lock:
            block = self._held.get(tensor.data_ptr())
            if block is None or block.storage is None or block.storage.cdata != tensor.untyped_storage()._cdata:
                block = self._part.block(size)
                if block is None:
                    return None
                block.storage = None
                ctypes.memmove(self._arena.address + block.offset, tensor.data_ptr(), size)
            block.sent = (block.sent + 1) & 0xFFFFFFFF
        return Sent(received, (self._arena.number, block.entry, block.offset, size, *what, pinned))


def rows_first(shape: Any) -> tuple[int, ...]:
    """The strides of `torch.empty`: also those of sides of length one, which `is_contiguous` does not look at."""
    sizes = [max(1, size) for size in shape[1:]]
    return tuple(reversed(list(itertools.accumulate(reversed(sizes), lambda a, b: a * b, initial=1)))) if len(shape) else ()


def pinned_by_torch(torch: Any, batch: Any) -> Iterator[Any]:
    """The tensors that the thread which pins would find: not those in objects that it does not know."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif hasattr(batch, "pin_memory") or isinstance(batch, (str, bytes)):
        return
    elif isinstance(batch, Mapping):
        for part in batch.values():
            yield from pinned_by_torch(torch, part)
    elif isinstance(batch, (tuple, Sequence)):
        for part in batch:
            yield from pinned_by_torch(torch, part)


class Parcel:
    """What a worker puts into its queue; unpickled it is the batch itself."""

    def __init__(self, packer: Packer, batch: Any) -> None:
        self._packer = packer
        self._batch = batch

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            return opened, self._packer.pack(self._batch)
        except Exception:  # torch's way, and torch's errors
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
    pin = bool(loader.pin_memory) and torch.cuda.is_available()
    arena = arena_for(torch, loader.num_workers, pin) if start_method == "fork" else None
    if arena is None:
        return make()
    collate = loader.collate_fn
    loader.collate_fn = Packing(arena, collate)
    try:
        iterator = make()
    finally:
        loader.collate_fn = collate
    # The thread that receives holds the queue for as long as it runs: also where a collection takes iterator and all at once.
    iterator._worker_result_queue._flatout_arena = arena
    return iterator
