"""Batches through memory that workers and their receiver share: the same objects, the same bits, nothing overwritten."""

import dataclasses
import gc
import os
import pickle
import resource
from collections import namedtuple
from multiprocessing.reduction import ForkingPickler

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset, default_collate
from torch.utils.data._utils import worker

from _flatout_agent.knobs.loader import shared_memory_pool, shared_memory_transport
from _flatout_agent.knobs.loader.replacement_iterators import LiveSampler, Settings, build

pytestmark = pytest.mark.filterwarnings("ignore")

Pair = namedtuple("Pair", "first second")
LARGE = 3000  # numbers: more than goes in a message


@pytest.fixture
def packer(monkeypatch):
    return fresh_packer(monkeypatch)


def fresh_packer(monkeypatch):
    """As in a worker: torch's collation asks for shared memory only there."""
    monkeypatch.setattr(worker, "_worker_info", worker.WorkerInfo(id=0, num_workers=1, seed=0, dataset=None))
    return shared_memory_transport.Packer(shared_memory_pool.arena_for(torch, 1, pin=False), 0)


def sent(packer, batch):
    return bytes(ForkingPickler.dumps(shared_memory_transport.Parcel(packer, batch)))


def through(packer, batch):
    return pickle.loads(sent(packer, batch))


def blocks(packer):
    return sum(map(len, packer._part.blocks.values()))


def iterator_of(loader, workers=2, pin=False):
    return build(torch, loader, Settings(workers, False, 2, pin), LiveSampler(iter(loader._index_sampler)), 7)


def same(one, other):
    if isinstance(one, torch.Tensor):
        assert (type(one), one.dtype, one.shape, one.stride()) == (type(other), other.dtype, other.shape, other.stride())
        assert one.requires_grad == other.requires_grad
        return torch.equal(one, other)
    if isinstance(one, dict):
        return type(one) is type(other) and list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and all(same(*both) for both in zip(one, other, strict=True))
    return type(one) is type(other) and bool(np.all(one == other))


class Operations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


class Everything(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        noise = torch.Generator().manual_seed(index)
        return {
            "picture": torch.randn(3, 20, 20, generator=noise),
            "small": index,
            "pair": Pair(torch.full((600,), index, dtype=torch.int16), torch.randn(700, generator=noise).to(torch.bfloat16)),
            "mask": torch.rand(2000, generator=noise) > 0.5,
            "complex": torch.randn(400, dtype=torch.complex64, generator=noise),
            "name": f"sample {index}",
            "array": np.arange(index, index + 500, dtype=np.float64),
        }


class AsItComes(Dataset):
    """What collation does not touch: views, other layouts, other kinds."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        base = torch.arange(float(LARGE)) + index
        return [
            base[10:2000],
            base.view(30, 100).t(),
            torch.empty(0, 7),
            torch.tensor(index),
            torch.nn.Parameter(base.clone()),
            base.clone().requires_grad_(),
            base.to_sparse(),
            base.view(1, 3, 10, 100).to(memory_format=torch.channels_last),
            base.numpy().copy(),  # torch moves a storage that it shares, and leaves arrays on it behind
            torch.quantize_per_tensor(base, 1.0, 0, torch.quint8).int_repr(),
        ]


@pytest.mark.parametrize("workers", [1, 3])
def test_batches_are_the_same_objects(workers):
    loader = DataLoader(Everything(), batch_size=5)
    served = iterator_of(loader, workers)
    ours, plain = list(served), list(loader)
    assert len(ours) == 5
    assert all(same(*both) for both in zip(ours, plain, strict=True))
    assert served._worker_result_queue._flatout_arena.taken == 5 * 6  # all but the small one, which came in the message


def test_what_cannot_be_carried_goes_torchs_way():
    loader = DataLoader(AsItComes(), batch_size=None)
    for ours, plain in zip(iterator_of(loader), loader, strict=True):
        for one, other in zip(ours, plain, strict=True):
            if isinstance(one, torch.Tensor) and one.layout is torch.sparse_coo:
                one, other = one.to_dense(), other.to_dense()
            assert same(one, other)


def first_and_view(samples):
    batch = default_collate(samples)
    return batch, batch.view(-1)


def test_two_tensors_on_one_storage_stay_so():
    loader = DataLoader([torch.ones(LARGE) * k for k in range(4)], batch_size=2, collate_fn=first_and_view)
    for batch, flat in iterator_of(loader):
        flat[5] = 77
        assert batch[0, 5] == 77


class Cached:
    """A collation that returns again what it made first, beside what is new."""

    def __init__(self):
        self.made = None

    def __call__(self, samples):
        if self.made is None:
            self.made = default_collate(samples)
        return self.made, default_collate(samples)


def test_a_batch_that_its_worker_keeps_is_not_given_away():
    data = [torch.full((LARGE,), float(k)) for k in range(40)]
    served = iterator_of(DataLoader(data, batch_size=2, collate_fn=Cached()), workers=1)
    kept = list(served)
    for number, (made, fresh) in enumerate(kept):
        assert torch.equal(made, torch.stack(data[:2]))
        assert torch.equal(fresh, torch.stack(data[2 * number : 2 * number + 2]))  # nobody wrote over what was received
    assert served._worker_result_queue._flatout_arena.taken == 2 * 20


def test_blocks_are_used_again(packer):
    for number in range(200):
        with packer.collating():
            batch = default_collate([torch.full((LARGE,), float(number))] * 4)
        assert packer._held
        got = through(packer, (batch, torch.full((LARGE,), -number)))
        assert (got[0] == number).all()
        assert (got[1] == -number).all()
        del batch
    assert blocks(packer) <= 3


def test_with_no_free_block_torchs_way_is_left(packer):
    packer._part._end = packer._part._next + 4 * 16384
    flying = [sent(packer, torch.full((LARGE,), float(number))) for number in range(8)]
    assert blocks(packer) == 4  # the fifth has no room
    for number, parcel in enumerate(flying):
        assert (pickle.loads(parcel) == number).all()
    assert packer._arena.taken == 4


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(300, 5000), st.booleans(), st.integers(0, 4)), min_size=1, max_size=40))
def test_nothing_in_flight_is_written_over(steps):
    """Sent at any pace, received at any pace, of any size, collated in place or copied, kept here or not."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        packer = fresh_packer(monkeypatch)
        flying, kept = [], []
        for number, (size, in_place, receives) in enumerate(steps):
            if in_place:
                with packer.collating():
                    tensor = default_collate([torch.full((size,), float(number))] * 2)
                assert tensor.data_ptr() in packer._held
            else:
                tensor = torch.full((size,), float(number))
            flying.append((number, sent(packer, [tensor])))
            if receives == 4:
                kept.append((number, tensor))
            for _ in range(min(receives, len(flying))):
                expected, parcel = flying.pop(0)
                assert (pickle.loads(parcel)[0] == expected).all()
            assert all((tensor == expected).all() for expected, tensor in kept)
        for expected, parcel in flying:
            assert (pickle.loads(parcel)[0] == expected).all()


def test_sizes_that_grow_find_the_blocks_of_those_before(packer):
    for size in range(2_000_000, 3_000_000, 5_000):
        assert through(packer, torch.empty(size, dtype=torch.uint8)).numel() == size
    assert blocks(packer) == 2
    assert packer._arena.taken == 200


def test_receiving_takes_no_threads(packer):
    """Torch copies with as many threads as there are cores, and beside busy workers it waits for each of them."""
    parcel = sent(packer, [torch.ones(1 << 20), torch.zeros(1 << 18, dtype=torch.int64), torch.ones(3)])
    with Operations() as seen:
        pickle.loads(parcel)
    assert set(seen.names) == {"aten.empty.memory_format"}


def test_memory_ends_with_the_iterator():
    before = set(shared_memory_pool._arenas)
    served = iterator_of(DataLoader(Everything(), batch_size=4))
    next(served)
    assert set(shared_memory_pool._arenas) != before
    del served
    gc.collect()
    assert set(shared_memory_pool._arenas) == before


def test_pages_are_given_back_though_another_process_maps_them():
    found = shared_memory_pool.arena_for(torch, 1, pin=False)
    found.memory[8 << 20 : 40 << 20] = b"1" * (32 << 20)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent has looked
        os._exit(0)
    try:
        os.close(reading)
        before = shmem()
        del found
        assert before - shmem() > 30 << 10
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def shmem():
    """Kilobytes, of the whole machine."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Shmem:"))


def test_a_forked_child_gives_nothing_back():
    found = shared_memory_pool.arena_for(torch, 1, pin=False)
    found.memory[8192:8195] = b"abc"
    child = os.fork()
    if child == 0:
        del found
        os._exit(0)
    os.waitpid(child, 0)
    assert found.memory[8192:8195] == b"abc"


BASE = torch.arange(float(LARGE))


@pytest.mark.parametrize(
    "alias",
    [
        lambda x: x.view(-1),
        lambda x: x.t(),
        lambda x: x[:, 1],
        lambda x: x[3:5],
        lambda x: torch.nn.Parameter(x),
        lambda x: x.as_subclass(Kind),
        lambda x: x.detach().requires_grad_(),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_what_lies_on_one_storage_still_does(packer, alias, order):
    x = BASE.clone().view(30, 100)
    pair = through(packer, [x, alias(x)][::order])
    x, other = pair[::order]
    x.zero_()
    assert not other.detach().any()


class Kind(torch.Tensor):
    pass


def two_views(samples):
    whole = torch.full((2, 3000), float(samples[0]))
    return whole[0], whole[1]


class Descriptors(Dataset):
    def __len__(self):
        return 300

    def __getitem__(self, index):
        return len(os.listdir("/proc/self/fd"))


def two_views_and_descriptors(samples):
    return (*two_views(samples), samples[0])


def test_what_goes_torchs_way_leaves_nothing_behind():
    loader = DataLoader(Descriptors(), batch_size=1, collate_fn=two_views_and_descriptors)
    seen = [descriptors for *_, descriptors in iterator_of(loader, workers=1)]
    assert max(seen[50:]) <= max(seen[:50]) + 8


def test_arrays_arrive_as_they_do_from_torch(packer):
    array = np.frombuffer(b"0123456789" * 300, dtype=np.uint8)
    by_torch = pickle.loads(bytes(ForkingPickler.dumps([array])))[0]
    assert through(packer, [array])[0].flags.writeable == by_torch.flags.writeable


def test_sides_of_length_one_keep_their_strides(packer):
    picture = torch.randn(4, 1, 32, 32).to(memory_format=torch.channels_last)
    assert picture.is_contiguous()
    assert through(packer, picture).stride() == picture.stride()


def test_memory_that_the_script_shares_stays_shared(packer):
    state = torch.zeros(LARGE).share_memory_()
    through(packer, [state])[0].fill_(7)
    assert (state == 7).all()


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64])
@pytest.mark.parametrize("numbers", [3, LARGE])
def test_every_bit_of_every_kind(packer, dtype, numbers):
    size = torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(0, 256, (numbers * size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    got = through(packer, raw.clone().view(dtype))
    assert got.dtype is dtype
    assert torch.equal(got.view(torch.uint8), raw)


def test_a_mode_that_makes_something_else_is_an_error_and_no_crash(packer):
    parcel = sent(packer, torch.ones(LARGE))
    with FakeTensorMode(), pytest.raises(RuntimeError, match="was asked for"):
        pickle.loads(parcel)


def test_where_addresses_are_counted_there_is_no_arena():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 40, hard))
    try:
        assert shared_memory_pool.arena_for(torch, 2, pin=False) is None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert shared_memory_pool.arena_for(torch, 2, pin=False) is not None


class PinningTorch:
    """Without a card nothing can be pinned: what would be is noted."""

    Tensor = torch.Tensor

    def __init__(self, full=False):
        self.pinned = []
        self._full = full

    def empty(self, shape, *, pin_memory=False, **rest):
        if pin_memory and self._full:
            raise RuntimeError("CUDA error: out of memory")
        self.pinned.append(pin_memory)
        return torch.empty(shape, **rest)


@pytest.mark.parametrize("full", [False, True])
def test_into_pinned_memory_at_once(packer, full):
    """Large tensors; the small ones are left to the thread that pins, and all of them where there is no such memory left."""
    packer._arena.pin = True
    x, y, label = torch.rand(LARGE), torch.rand(8 << 20), torch.ones(3)
    parcel = sent(packer, {"x": x, "rest": [y, label], "unknown": Unknown(torch.rand(LARGE))})
    packer._arena.torch = card = PinningTorch(full)
    got = pickle.loads(parcel)
    assert sorted(card.pinned) == [False, False, not full, not full]
    assert torch.equal(got["x"], x)
    assert torch.equal(got["rest"][0], y)
    assert torch.equal(got["rest"][1], label)


@dataclasses.dataclass
class Unknown:
    x: object


class Pins:
    def __init__(self, x):
        self.x = x

    def pin_memory(self):
        return self


def test_what_torch_would_not_pin_is_not_pinned():
    tensors = [torch.ones(1) * number for number in range(6)]
    a, b, c, d, e, f = tensors
    batch = {"a": a, "b": [b, (c, "text")], "c": Pair(d, 1), "d": Unknown(e), "e": Pins(f)}
    assert [tensor.item() for tensor in shared_memory_transport.pinned_by_torch(torch, batch)] == [0, 1, 2, 3]


def test_a_default_device_of_the_script_is_not_asked(packer):
    whole, small = torch.ones(LARGE), torch.ones(3)
    torch.set_default_device("meta")
    try:
        with packer.collating():
            together = default_collate([whole, whole])
        got = through(packer, [whole, small, together])
    finally:
        torch.set_default_device(None)
    assert [tensor.device.type for tensor in got] == ["cpu"] * 3
    assert all((tensor == 1).all() for tensor in got)


def test_other_ways_of_starting_workers_have_no_such_memory():
    loader = DataLoader(Everything(), batch_size=6, num_workers=1, multiprocessing_context="forkserver")
    served = iterator_of(loader, workers=1)
    assert not hasattr(served._worker_result_queue, "_flatout_arena")
    assert all(same(*both) for both in zip(served, DataLoader(Everything(), batch_size=6), strict=True))


def raising(samples):
    raise LookupError("no such thing")


def test_what_a_collation_raises_arrives():
    with pytest.raises(LookupError, match="no such thing"):
        next(iterator_of(DataLoader(Everything(), batch_size=2, collate_fn=raising)))
