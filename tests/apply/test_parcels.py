"""Batches through memory that workers and their receiver share: the same objects, the same bits, nothing overwritten."""

import gc
import pickle
from collections import namedtuple

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset, default_collate

from _flatout_agent.apply import parcels
from _flatout_agent.apply.stand_in import LiveSampler, Settings, build

pytestmark = pytest.mark.filterwarnings("ignore")

Pair = namedtuple("Pair", "first second")
LARGE = 3000  # numbers: more than goes in a message


@pytest.fixture
def packer():
    arena = parcels.Arena(torch, 1, pin=False)
    parcels._arenas[arena.number] = arena
    yield parcels.Packer(arena, 0)
    del parcels._arenas[arena.number]


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
    assert served._flatout_arena.taken == 5 * 6  # all but the small one, which came in the message


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
    assert served._flatout_arena.taken == 2 * 20


def test_blocks_are_used_again(packer):
    for number in range(200):
        with packer.collating():
            batch = default_collate([torch.full((LARGE,), float(number))] * 4)
        got = pickle.loads(packer.pack((batch, torch.full((LARGE,), -number))))
        assert (got[0] == number).all()
        assert (got[1] == -number).all()
        del batch
    assert len(packer._blocks) <= 3


def test_with_no_free_block_torchs_way_is_left(packer):
    packer._arena.part = parcels.LEDGER + 4 * 4 * LARGE
    sent = [packer.pack(torch.full((LARGE,), float(number))) for number in range(8)]
    assert len(packer._blocks) == 3  # the fourth has no room
    for number, parcel in enumerate(sent):
        assert (pickle.loads(parcel) == number).all()
    assert packer._arena.taken == 3


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(300, 5000), st.booleans(), st.integers(0, 4)), min_size=1, max_size=40))
def test_nothing_in_flight_is_written_over(steps):
    """Sent at any pace, received at any pace, of any size, collated in place or copied, kept here or not."""
    arena = parcels.Arena(torch, 1, pin=False)
    parcels._arenas[arena.number] = arena
    packer = parcels.Packer(arena, 0)
    flying, kept = [], []
    for number, (size, in_place, receives) in enumerate(steps):
        if in_place:
            with packer.collating():
                tensor = default_collate([torch.full((size,), float(number))] * 2)
        else:
            tensor = torch.full((size,), float(number))
        flying.append((number, packer.pack([tensor])))
        if receives == 4:
            kept.append((number, tensor))
        for _ in range(min(receives, len(flying))):
            expected, parcel = flying.pop(0)
            assert (pickle.loads(parcel)[0] == expected).all()
        assert all((tensor == expected).all() for expected, tensor in kept)
    for expected, parcel in flying:
        assert (pickle.loads(parcel)[0] == expected).all()
    del parcels._arenas[arena.number]


def test_receiving_takes_no_threads(packer):
    """Torch copies with as many threads as there are cores, and beside busy workers it waits for each of them."""
    parcel = packer.pack([torch.ones(1 << 20), torch.zeros(1 << 18, dtype=torch.int64)])
    with Operations() as seen:
        pickle.loads(parcel)
    assert set(seen.names) == {"aten.empty.memory_format"}


def test_memory_ends_with_the_iterator():
    before = set(parcels._arenas)
    served = iterator_of(DataLoader(Everything(), batch_size=4))
    next(served)
    assert set(parcels._arenas) != before
    del served
    gc.collect()
    assert set(parcels._arenas) == before


def test_a_default_device_of_the_script_is_not_asked(packer):
    whole, small = torch.ones(LARGE), torch.ones(3)
    torch.set_default_device("meta")
    try:
        with packer.collating():
            together = default_collate([whole, whole])
        got = pickle.loads(packer.pack([whole, small, together]))
    finally:
        torch.set_default_device(None)
    assert [tensor.device.type for tensor in got] == ["cpu"] * 3
    assert all((tensor == 1).all() for tensor in got)


def test_other_ways_of_starting_workers_have_no_such_memory():
    loader = DataLoader(Everything(), batch_size=6, num_workers=1, multiprocessing_context="forkserver")
    served = iterator_of(loader, workers=1)
    assert not hasattr(served, "_flatout_arena")
    assert all(same(*both) for both in zip(served, DataLoader(Everything(), batch_size=6), strict=True))


def raising(samples):
    raise LookupError("no such thing")


def test_what_a_collation_raises_arrives():
    with pytest.raises(LookupError, match="no such thing"):
        next(iterator_of(DataLoader(Everything(), batch_size=2, collate_fn=raising)))
