"""A trial's batches: the loader drawn from at full speed, and what the script sees of that."""

import time

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset

from _flatout_agent.trial.loader_ceiling import MOST_EPOCHS, Supply

FETCH_S = 0.004


class Slow(Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        time.sleep(FETCH_S)
        return torch.tensor(index)


def drawn(supply, batches, unsettled=lambda: False):
    """The batches of one epoch as the script gets them."""
    got = []
    try:
        while True:
            got.append(supply.draw(lambda: next(batches), unsettled))
            if supply.over or supply.epoch_over:
                return got
    except StopIteration:
        return got


def asked(**changes):
    return {"warm_steps": 2, "timed_s": 0.1, "timed_steps": 4, **changes}


def test_the_rate_is_the_loaders_own_whatever_the_script_does():
    supply = Supply(asked())
    (batch,) = drawn(supply, iter(DataLoader(Slow(400), batch_size=4)))
    assert supply.over
    assert supply.usable
    assert 0.1 / FETCH_S < supply.samples / (supply.spent / 1e9) < 1 / FETCH_S  # sleeping takes longer than asked, never less
    assert supply.samples == 4 * supply.steps
    assert batch.tolist()[0] == 4 * (supply.steps + 2 - 1)  # the last one drawn is the one trained on


def test_no_epoch_is_empty_and_short_ones_add_up():
    supply, loader = Supply(asked(warm_steps=30, timed_s=0.0, timed_steps=10)), DataLoader(Slow(32), batch_size=4)
    epochs = 0
    while not supply.over:
        supply.begin_epoch(len(loader))
        got = drawn(supply, iter(loader))
        assert len(got) == 1
        epochs += 1
    assert epochs == 2  # eight batches each, of which two are for warming
    assert supply.usable


def test_epochs_too_short_for_anything_end_it():
    supply, loader = Supply(asked(timed_s=10.0)), DataLoader(Slow(1), batch_size=1)
    for _ in range(MOST_EPOCHS):
        supply.begin_epoch(len(loader))
        drawn(supply, iter(loader))
    assert supply.over
    assert not supply.usable


def test_what_was_fetched_before_a_switch_is_not_timed():
    ready = iter([True] * 10 + [False] * 1000)
    supply = Supply(asked(timed_s=0.0, timed_steps=3))
    (batch,) = drawn(supply, iter(DataLoader(Slow(100), batch_size=1)), lambda: next(ready))
    assert int(batch) == 10 + 2 + 3 - 1
