"""The script's own code between the known parts of its loop: the lines that take the time; and plain loops have no thread."""

import os
import sys
import time

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, TensorDataset

from _flatout_agent.core.patches import Patches
from _flatout_agent.start import install
from _flatout_agent.timeline.event_buffer import Tape
from _flatout_agent.timeline.hooks.script_lines import READINGS
from _flatout_agent.timeline.phase_totals import SCRIPT
from _flatout_agent.timeline.step_clock import StepClock


@pytest.fixture
def tape():
    patches, tape = Patches(), Tape(StepClock(time.perf_counter_ns()), lambda now: None)
    install(torch, tape, patches)
    yield tape
    patches.take_off()


def drawn():
    time.sleep(0.03)  # the drawing


def given(steps):
    return TensorDataset(torch.randn(steps, 4))


def line_of(words):
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, text in enumerate(file, 1) if words in text)


def loop(tape, data, after_a_step):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, (x,) in enumerate(DataLoader(data)):
        model(x).sum().backward()
        optimizer.step()
        after_a_step()
        if number % 5 == 4:
            tape.read(time.perf_counter_ns())


def threads():
    return len(sys._current_frames())


def test_the_line_that_takes_the_time_is_found(tape):
    before = threads()
    loop(tape, given(40), drawn)
    assert threads() == before + 1
    told = tape.own_lines.told()
    assert told["own_lines"][0][0] == f"{__file__}:{line_of('# the drawing')}"
    assert told["own_lines"][0][1] > 0.8 * told["own_lines_seen"]
    tape.own_lines.end()
    assert threads() == before


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        time.sleep(0.02)  # waiting for data: a known part
        return (torch.randn(4),)


def test_waiting_for_data_is_none_of_it(tape):
    loop(tape, Slow(), drawn)
    lines = [site for site, _ in tape.own_lines.told()["own_lines"]]
    assert lines[0] == f"{__file__}:{line_of('# the drawing')}"
    assert f"{__file__}:{line_of('# waiting for data')}" not in lines


def test_the_thread_comes_and_goes_with_what_it_looks_for(tape):
    before, now, lines = threads(), 1, tape.own_lines
    tape.iterator = 1
    for _ in range(3):
        now += 1_000_000_000
        tape.clock.totals[SCRIPT] += 10_000_000  # one in a hundred
        lines.after_reading(now)
    assert threads() == before
    now += 1_000_000_000
    tape.clock.totals[SCRIPT] += 200_000_000
    lines.after_reading(now)
    until = time.monotonic() + 10
    while threads() == before and time.monotonic() < until:
        time.sleep(0.001)
    assert threads() == before + 1
    for _ in range(READINGS):
        now += 1_000_000_000
        lines.after_reading(now)
    assert threads() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_the_thread_is_gone_before_a_fork(tape):
    before = threads()
    loop(tape, given(20), drawn)
    assert threads() == before + 1
    tape.own_lines.end()  # as the handler before a fork does
    tape.own_lines.end()
    assert threads() == before
    loop(tape, given(20), drawn)
    assert threads() == before + 1
