"""The script's own code between the known parts of its loop: the lines that take the time; and plain loops have no thread."""

import os
import sys
import time

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, TensorDataset

from _flatout_agent.clock import StepClock
from _flatout_agent.patch import Patches
from _flatout_agent.start import install
from _flatout_agent.tape import Tape


@pytest.fixture
def tape():
    patches, tape = Patches(), Tape(StepClock(time.perf_counter_ns()), lambda now: None)
    install(torch, tape, patches)
    yield tape
    patches.take_off()


def drawn():
    time.sleep(0.03)  # the drawing


def loop(tape, steps, after_a_step):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(steps, 4)))):
        model(x).sum().backward()
        optimizer.step()
        after_a_step()
        if number % 5 == 4:
            tape.read(time.perf_counter_ns())


def threads():
    return len(sys._current_frames())


def test_the_line_that_takes_the_time_is_found(tape):
    before = threads()
    loop(tape, 40, drawn)
    assert threads() == before + 1
    told = tape.own_lines.told()
    with open(__file__, encoding="utf-8") as file:
        line = next(number for number, text in enumerate(file, 1) if "# the drawing" in text)
    assert told["own_lines"][0][0] == f"{__file__}:{line}"
    assert told["own_lines"][0][1] > 0.8 * told["own_lines_seen"]
    tape.own_lines.end()
    assert threads() == before


def test_a_plain_loop_has_no_thread(tape):
    before = threads()
    busy = torch.randn(200, 200)

    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 60

        def __getitem__(self, index):
            (busy @ busy).sum()
            time.sleep(0.002)
            return (torch.randn(4),)

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, (x,) in enumerate(DataLoader(Slow())):
        model(x).sum().backward()
        optimizer.step()
        if number % 5 == 4:
            tape.read(time.perf_counter_ns())
    assert threads() == before
    assert tape.own_lines.told() == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_the_thread_is_gone_before_a_fork(tape):
    before = threads()
    loop(tape, 20, drawn)
    assert threads() == before + 1
    tape.own_lines.end()  # as the handler before a fork does
    tape.own_lines.end()
    assert threads() == before
    loop(tape, 20, drawn)
    assert threads() == before + 1
