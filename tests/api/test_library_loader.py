"""The optimised loader: the same batches in the same order, everything of the user's kept, and what it passes on or refuses."""

import gc

import pytest
import torch
from examples import given, settings, st
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SubsetRandomSampler, WeightedRandomSampler
from trainings import Rows, seed, training

from _flatout_agent.knobs.loader import shared_memory_pool
from flatout import OptimizedDataLoader, TrainingAccelerator
from flatout.api.data_loading import OptimizedDataLoader as Loader
from flatout.api.errors import LoaderError
from flatout.api.loader_settings import _looked_at
from flatout.api.training_config import TrainingConfig

CPU = torch.device("cpu")


def optimised(loader, **config):
    return Loader(loader, TrainingConfig(**config), CPU)


def rows(loader, epochs=2):
    return [x.clone() for _ in range(epochs) for x, _ in loader]


def alike(make, **config):
    """Two epochs of the plain loader and of the optimised one, from the same seeds."""
    seed(4)
    plain = rows(make())
    seed(4)
    ours = rows(optimised(make(), **config))
    assert len(plain) == len(ours)
    return all(torch.equal(a, b) for a, b in zip(plain, ours, strict=True))


@given(
    size=st.integers(1, 40),
    batch=st.integers(1, 12),
    shuffle=st.booleans(),
    drop=st.booleans(),
    own=st.booleans(),
    noise=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_same_batches_in_the_same_order(size, batch, shuffle, drop, own, noise):
    def make():
        generator = torch.Generator().manual_seed(9) if own else None
        data = Rows(size, noise=noise)
        return DataLoader(data, batch_size=batch, shuffle=shuffle, drop_last=drop, generator=generator)

    assert alike(make)


def test_samplers_collate_and_no_batching_are_kept():
    data = Rows(20)

    def collate(samples):
        return torch.stack([x for x, _ in samples]) * 2, None

    assert alike(lambda: DataLoader(data, batch_size=4, sampler=WeightedRandomSampler(torch.ones(20), 12)))
    assert alike(lambda: DataLoader(data, batch_sampler=BatchSampler(SubsetRandomSampler(range(9)), 2, False)))
    assert alike(lambda: DataLoader(data, batch_size=None, shuffle=False))
    assert alike(lambda: DataLoader(data, batch_size=4, collate_fn=collate))


def test_workers_keep_the_order_and_get_the_users_init(tmp_path):
    def init(worker):
        (tmp_path / f"worker-{worker}").touch()

    plain = DataLoader(Rows(24), batch_size=4, shuffle=True, worker_init_fn=init)
    seed(2)
    expected = rows(plain, 1)
    seed(2)
    loader = optimised(plain, num_workers=2, persistent_workers=True, prefetch_factor=3)
    found = rows(loader, 1)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["worker-0", "worker-1"]
    assert (loader.num_workers, loader.settings.persistent, loader.settings.prefetch) == (2, True, 3)
    loader.close()
    with pytest.raises(LoaderError, match="closed"):
        next(iter(loader))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(6.0))


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_send_through_shared_memory(persistent):
    data = [torch.randn(600, generator=torch.Generator().manual_seed(k)) for k in range(20)]

    def make():
        return DataLoader(data, batch_size=3, num_workers=2, persistent_workers=persistent)

    ours = optimised(make())
    assert ours.num_workers == 2
    arenas = set(shared_memory_pool._arenas)
    plain = [batch.clone() for batch in make()]
    for _ in range(2):
        for batch, other in zip(ours, plain, strict=True):
            assert torch.equal(batch, other)
            (number,) = set(shared_memory_pool._arenas) - arenas
            assert shared_memory_pool._arenas[number].taken > 0
    ours.close()
    gc.collect()
    assert set(shared_memory_pool._arenas) == arenas


def test_an_iterable_dataset_is_passed_on_with_the_reason():
    accelerator = TrainingAccelerator()
    loader = accelerator.optimize_data_loading(DataLoader(Stream(), batch_size=2))
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
    assert any("IterableDataset" in note for note in accelerator.notes)


def test_a_subclass_is_passed_on_with_the_reason():
    class Mine(DataLoader):
        def __iter__(self):
            return iter([1, 2, 3])

    accelerator = TrainingAccelerator()
    loader = accelerator.optimize_data_loading(Mine(Rows(4)))
    assert list(loader) == [1, 2, 3]
    assert "Mine" in loader.reasons["loader"]


def test_what_is_no_loader():
    accelerator = TrainingAccelerator()
    with pytest.raises(LoaderError, match=r"loader must be .* but it is a list"):
        accelerator.optimize_data_loading([1, 2])
    loader = accelerator.optimize_data_loading(training()[2])
    assert isinstance(loader, OptimizedDataLoader)
    with pytest.raises(LoaderError, match="already"):
        accelerator.optimize_data_loading(loader)


def test_the_look_at_a_dataset_draws_nothing_and_tells_noise_from_none():
    for noise in (False, True):
        loader = DataLoader(Rows(16, noise=noise), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(1))
        seed(6)
        before = torch.get_rng_state()
        fetching, seconds = _looked_at(loader)
        assert fetching.is_pure() != noise
        assert seconds > 0
        assert torch.equal(before, torch.get_rng_state())
        assert loader.generator.initial_seed() == 1
        assert torch.equal(loader.generator.get_state(), torch.Generator().manual_seed(1).get_state())


def test_epoch_and_position_count_what_was_given_out():
    loader = optimised(training()[2])
    seen = [(loader.epoch, loader.position) for _ in range(2) for _ in loader]
    assert seen == [(epoch, position) for epoch in range(2) for position in range(1, 7)]
    assert (loader.epoch, loader.position, len(loader), loader.batch_size) == (2, 0, 6, 8)
    for _ in loader:
        break
    assert len(list(loader)) == 6  # left early, an epoch begins anew
