"""Loaders that one line makes, and several from one dataset: which are trained from, and what is kept alive for it."""

import gc
import weakref
from time import perf_counter_ns

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

from _flatout_agent.core.patches import Patches
from _flatout_agent.modes.driver import Course, Driver
from _flatout_agent.timeline.event_buffer import Tape
from _flatout_agent.timeline.hooks import loader_wait as observed
from _flatout_agent.timeline.step_clock import StepClock


class Nothing(Course):
    def begin(self, driver):
        pass

    def stepped(self, driver, now):
        return True


@pytest.fixture
def driver():
    tape, patches = Tape(StepClock(perf_counter_ns()), lambda now: None), Patches()
    observed.watch(torch, tape, patches)
    yield Driver(torch, tape, lambda *_, **__: None, Nothing(), {})
    patches.take_off()


def trained(driver, loader):
    """One batch that a backward pass takes."""
    clock = driver.tape.clock
    iterator = iter(loader)
    next(iterator)
    driver.tape.note((clock.backward_began, perf_counter_ns()))
    driver.tape.note((clock.backward_ended, perf_counter_ns()))
    return iterator


def looked_at(loader):
    for _ in loader:
        pass


def data(size=8):
    return TensorDataset(torch.arange(size))


def of(dataset, chosen=range(8)):
    return DataLoader(dataset, batch_size=4, sampler=SubsetRandomSampler(chosen))


def test_of_one_line_only_what_is_trained_on(driver):
    train, valid = of(data()), of(data())
    held = trained(driver, train)
    looked_at(valid)
    assert driver.training_loaders() == [train]
    trained(driver, train)
    assert driver.training_loaders() == [train]
    del held


def test_of_one_dataset_only_the_loader_that_is_trained_from(driver):
    both = data()
    train = of(both, range(4))
    valid = DataLoader(both, batch_size=2)
    trained(driver, train)
    looked_at(valid)
    trained(driver, train)
    assert driver.training_loaders() == [train]


def test_what_a_line_made_before_is_not_kept_alive(driver):
    """A loader for each rollout: their data may fill a card."""
    seen = []
    for _ in range(5):
        dataset = data()
        seen.append(weakref.ref(dataset))
        trained(driver, of(dataset))
    del dataset
    gc.collect()
    assert sum(one() is not None for one in seen) == 1
    assert len(driver.training_loaders()) == 1
