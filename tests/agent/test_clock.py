"""The step clock, driven by hand: every nanosecond in one phase."""

import random

from _flatout_agent.clock import StepClock
from _flatout_agent.wire import PHASES


def new_clock():
    windows = []
    return StepClock(0, lambda clock, now: windows.append((now, clock.steps))), windows


def phases(clock):
    return {name: value for name, value in zip(PHASES, clock.totals, strict=True) if value}


def test_one_step_in_order():
    clock, _ = new_clock()
    clock.loader_started(100, 110)
    clock.fetched(110, 150, 4)
    clock.copied(5)
    clock.backward_began(170)
    clock.backward_ended(200)
    clock.step_began(210, 1)
    clock.step_ended(230, 1)
    clock.finish(240)
    assert phases(clock) == {
        "startup": 100,
        "input": 50,
        "copy": 5,
        "forward": 15,
        "backward": 30,
        "optimizer": 30,
        "unexplained": 10,
    }
    assert (clock.steps, clock.samples, clock.batches, clock.backwards) == (1, 4, 1, 1)


def test_a_batch_that_is_followed_by_another_was_validation():
    clock, _ = new_clock()
    clock.fetched(10, 20, 4)
    clock.copied(3)
    clock.fetched(30, 40, 4)
    clock.exhausted(50, 55)
    clock.finish(60)
    assert phases(clock) == {"startup": 10, "validation": 45, "unexplained": 5}
    assert (clock.samples, clock.validation_batches) == (0, 2)


def test_a_closure_keeps_its_backward():
    clock, _ = new_clock()
    clock.fetched(0, 10, 2)
    clock.step_began(12, 7)
    clock.backward_began(20)
    clock.backward_ended(30)
    clock.backward_began(35)
    clock.backward_ended(45)
    clock.step_ended(50, 7)
    assert phases(clock) == {"input": 10, "forward": 2 + 8 + 5, "backward": 20, "optimizer": 5}
    assert (clock.steps, clock.samples) == (1, 2)


def test_a_subclass_calling_its_parents_step_is_one_step():
    clock, _ = new_clock()
    for start in (0, 100):
        clock.step_began(start, 7)
        clock.step_began(start + 10, 7)
        clock.step_ended(start + 20, 7)
        clock.step_ended(start + 30, 7)
    assert clock.steps == 2


def test_a_step_that_raised_does_not_swallow_the_next():
    clock, _ = new_clock()
    clock.step_began(0, 7)
    clock.fetched(10, 20, 1)
    clock.step_began(30, 7)
    clock.step_ended(40, 7)
    assert clock.steps == 1


def test_several_optimizers_are_one_step_a_round():
    clock, _ = new_clock()
    order = [1, 2, 3, 1, 2, 3]
    for now, optimizer in enumerate(order):
        clock.step_began(now * 10, optimizer)
        clock.step_ended(now * 10 + 5, optimizer)
    assert clock.steps == 2


def test_start_up_holds_the_models_own_copies():
    clock, _ = new_clock()
    clock.copied(50)
    clock.waited(5)
    clock.fetched(100, 110, 1)
    clock.backward_began(120)
    assert phases(clock) == {"startup": 100, "input": 10, "forward": 10}


def test_windows_grow_with_the_run():
    """A week of steps leaves some thousand windows, not a million."""
    clock, windows = new_clock()
    week = 7 * 24 * 3600 * 10**9
    step = 400 * 10**6
    for now in range(step, week, step):
        clock.step_ended(now, 1)
    assert 1000 < len(windows) < 10_000
    assert windows[-1][1] > 0.99 * clock.steps


def test_phases_add_up_whatever_happens():
    """Any order of boundaries: the totals are the wall time, none negative."""
    for seed in range(200):
        chance = random.Random(seed)
        clock, _ = new_clock()
        now = 0

        def later(chance=chance):
            nonlocal now
            now += chance.randrange(1, 50)
            return now

        for _ in range(60):
            event = chance.randrange(9)
            if event == 0:
                clock.fetched(later(), later(), chance.randrange(5))
            elif event == 1:
                clock.loader_started(later(), later())
            elif event == 2:
                clock.exhausted(later(), later())
            elif event == 3:
                clock.backward_began(later())
                clock.backward_ended(later())
            elif event == 4:
                clock.step_began(later(), 1)
            elif event == 5:
                clock.step_ended(later(), chance.randrange(1, 3))
            elif event == 6:
                clock.saved(later(), later())
            else:
                # inside the running phase: never more than the time that has really passed
                spent = later() and 1
                (clock.copied if event == 7 else clock.waited)(spent)
        clock.finish(later())
        assert min(clock.totals) >= 0
        assert sum(clock.totals) + clock._input == now
