"""The step clock, driven by hand: every nanosecond in one phase."""

import random

import pytest

from _flatout_agent.core.object_numbers import Identities
from _flatout_agent.timeline.step_clock import StepClock
from _flatout_agent.wire import PHASES


def new_clock():
    return StepClock(0)


def phases(clock):
    return {name: value for name, value in zip(PHASES, clock.totals, strict=True) if value}


def test_one_step_in_order():
    clock = new_clock()
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
        "script": 10,
    }
    assert (clock.steps, clock.samples, clock.batches, clock.backwards) == (1, 4, 1, 1)


def test_a_batch_that_is_followed_by_another_was_validation():
    clock = new_clock()
    clock.fetched(10, 20, 4)
    clock.copied(3)
    clock.fetched(30, 40, 4)
    clock.exhausted(50, 55)
    clock.finish(60)
    assert phases(clock) == {"startup": 10, "validation": 45, "script": 5}
    assert (clock.samples, clock.validation_batches) == (0, 2)


def test_a_closure_keeps_its_backward():
    clock = new_clock()
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
    clock = new_clock()
    for start in (0, 100):
        clock.step_began(start, 7)
        clock.step_began(start + 10, 7)
        clock.step_ended(start + 20, 7)
        clock.step_ended(start + 30, 7)
    assert clock.steps == 2


def test_a_step_that_raised_does_not_swallow_the_next():
    clock = new_clock()
    clock.step_began(0, 7)
    clock.fetched(10, 20, 1)
    clock.step_began(30, 7)
    clock.step_ended(40, 7)
    assert clock.steps == 1


def test_several_optimizers_are_one_step_a_round():
    clock = new_clock()
    order = [1, 2, 3, 1, 2, 3]
    for now, optimizer in enumerate(order):
        clock.step_began(now * 10, optimizer)
        clock.step_ended(now * 10 + 5, optimizer)
    assert clock.steps == 2


@pytest.mark.parametrize(
    ("order", "steps"),
    [
        ("AAAA", 4),
        ("ABABAB", 3),
        ("ABCABC", 2),
        ("AAAAAB" * 3, 3),  # five steps of the critic to one of the generator
        ("ABBABB", 2),
        ("AB", 1),
        ("AAABBBCCC", 9),  # one optimizer after another: folds, stages
        ("A" * 40 + "AB" * 5, 45),  # first one alone, then both in turn
        ("AB" * 5 + "A" * 40, 45),
        ("AB" * 5 + "CCCC", 9),
        ("A" * 20 + "B" * 20 + "A" * 20 + "B" * 20, 80),  # an epoch of each in turn
    ],
)
def test_the_step_is_what_repeats(order, steps):
    clock = new_clock()
    for now, optimizer in enumerate(order):
        clock.step_began(now * 10, ord(optimizer))
        clock.step_ended(now * 10 + 5, ord(optimizer))
    assert clock.steps == steps


def test_a_number_is_never_given_twice():
    class Thing:
        pass

    identities, numbers = Identities(), []
    for _ in range(5):
        thing = Thing()  # mostly where the one before it was
        numbers.append(identities.of(thing))
        assert identities.of(thing) == numbers[-1]
        del thing
    assert len(set(numbers)) == 5
    assert not identities.numbers
    items = [1, 2]  # knows no weak references
    assert identities.of(items) == identities.of(items)


def steps_of(clock, now, backwards=1):
    for _ in range(backwards):
        clock.backward_began(now + 1)
        clock.backward_ended(now + 2)
    clock.step_began(now + 3, 1)
    clock.step_ended(now + 4, 1)


def test_a_batch_fetched_ahead_is_trained_on():
    """Accelerate's way, the last batch smaller."""
    clock = new_clock()
    clock.loader_started(0, 5, 1, 1)
    clock.fetched(10, 14, 4, 1)
    for now, size in ((20, 4), (30, 4), (40, 1)):
        clock.fetched(now, now + 4, size, 1)
        steps_of(clock, now + 4)
    clock.exhausted(50, 52, 1)
    steps_of(clock, 60)
    clock.finish(70)
    assert (clock.steps, clock.samples, clock.batches, clock.validation_batches) == (4, 13, 4, 0)
    assert (phases(clock)["input"], phases(clock)["turn"]) == (5 + 4 * 4, 2)
    assert "validation" not in phases(clock)


def test_batches_fetched_for_an_accumulated_step():
    """Transformers' way: as many as it accumulates, and then a backward pass for each."""
    clock = new_clock()
    for start in (0, 100):
        for now in range(start, start + 40, 10):
            clock.fetched(now, now + 5, 2)
        steps_of(clock, start + 50, backwards=4)
    assert (clock.steps, clock.samples, clock.batches) == (2, 16, 8)


def test_two_loaders_read_in_step():
    clock = new_clock()
    for start in (0, 50, 100):
        clock.fetched(start, start + 10, 3, 1)
        clock.fetched(start + 10, start + 20, 7, 2)
        steps_of(clock, start + 20)
    clock.finish(150)
    assert (clock.steps, clock.samples, clock.batches) == (3, 30, 6)
    assert phases(clock)["input"] == 60


def test_loaders_read_in_step_turn_together():
    clock = new_clock()
    for epoch in (0, 100):
        clock.loader_started(epoch, epoch, 1, 1)
        clock.loader_started(epoch, epoch, 2, 2)
        for start in (epoch, epoch + 40):
            clock.fetched(start, start + 10, 3, 1)
            clock.fetched(start + 10, start + 20, 7, 2)
            steps_of(clock, start + 20)
        clock.exhausted(epoch + 80, epoch + 81, 1)
    clock.finish(200)
    assert (clock.steps, clock.batches, clock.beside, clock.turns) == (4, 8, 4, 1)


@pytest.mark.parametrize("whole", [True, False])
def test_evaluation_with_a_batch_in_hand(whole):
    """Also in the first step, when nothing is known yet of either loader, and where it is broken off."""
    clock = new_clock()
    for start in (0, 100):
        clock.fetched(start, start + 10, 4, 1)
        clock.loader_started(start + 10, start + 12, 2, 2)
        for now in (20, 30, 40):
            clock.fetched(start + now, start + now + 5, 9, 2)
        if whole:
            clock.exhausted(start + 50, start + 51, 2)
        clock.saved(start + 55, start + 59)
        steps_of(clock, start + 60)
    clock.finish(200)
    assert (clock.steps, clock.samples, clock.validation_batches) == (2, 8, 6)
    assert phases(clock)["checkpoint"] == 8
    assert phases(clock)["input"] == 20


def test_an_evaluation_without_a_loader_keeps_its_copies_and_waits():
    clock = new_clock()
    steps_of(clock, 10)
    ended = clock._mark
    clock.evaluation_began(ended + 10)
    clock.copied(3)
    clock.waited(50)
    clock.saved(ended + 80, ended + 84)
    clock.evaluation_ended(ended + 100)
    seen = phases(clock)
    assert (seen["validation"], seen["checkpoint"]) == (86, 4)
    assert "device_wait" not in seen
    assert "copy" not in seen
    assert clock.evaluations == 1


def test_a_look_at_the_data_is_not_training():
    clock = new_clock()
    clock.loader_started(0, 1, 2, 2)
    clock.fetched(1, 2, 5, 2)
    clock.let_go(2)
    clock.loader_started(10, 11, 1, 1)
    clock.fetched(11, 12, 4, 1)
    steps_of(clock, 20)
    assert (clock.samples, clock.validation_batches) == (4, 1)


def test_steps_inside_the_backward_pass():
    """One optimizer per parameter: the batch counts once, and the time between two steps is backward."""
    clock = new_clock()
    for start in (0, 100):
        clock.fetched(start, start + 10, 4)
        clock.backward_began(start + 20)
        for now, optimizer in ((30, 1), (40, 2)):
            clock.step_began(start + now, optimizer)
            clock.step_ended(start + now + 5, optimizer)
        clock.backward_ended(start + 50)
    assert (clock.steps, clock.samples, clock.backwards) == (2, 8, 2)
    assert (phases(clock)["backward"], phases(clock)["optimizer"]) == (40, 20)


def test_a_new_dataset_each_epoch_does_not_fill_the_memory():
    clock = new_clock()
    for epoch in range(1000):
        clock.loader_started(epoch * 100, epoch * 100 + 1, epoch, epoch)
        clock.fetched(epoch * 100 + 2, epoch * 100 + 3, 4, epoch)
        steps_of(clock, epoch * 100 + 10)
    clock.finish(100_000)
    assert clock.samples == 4000
    assert len(clock._hand.accounts) < 100
    assert sum(clock.totals) == 100_000


def test_start_up_holds_the_models_own_copies():
    clock = new_clock()
    clock.copied(50)
    clock.waited(5)
    clock.fetched(100, 110, 1)
    clock.backward_began(120)
    assert phases(clock) == {"startup": 100, "input": 10, "forward": 10}


def test_phases_add_up_whatever_happens():
    """Any order of boundaries: the totals are the wall time, none negative."""
    for seed in range(200):
        chance = random.Random(seed)
        clock = new_clock()
        now = 0

        def later(chance=chance):
            nonlocal now
            now += chance.randrange(1, 50)
            return now

        for _ in range(60):
            event = chance.randrange(9)
            if event == 0:
                clock.fetched(later(), later(), chance.randrange(5), chance.randrange(3))
            elif event == 1:
                clock.loader_started(later(), later(), chance.randrange(3), chance.randrange(3))
            elif event == 2:
                clock.exhausted(later(), later(), chance.randrange(3))
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
        assert sum(clock.totals) == now


def epoch_of(clock, now, source=1, iterator=1, steps=2):
    """An epoch in ten-nanosecond moves: when its loader said that it was over."""
    clock.loader_started(now, now + 10, source, iterator)
    now += 10
    for _ in range(steps):
        clock.fetched(now, now + 10, 4, iterator)
        steps_of(clock, now + 10)
        now += 20
    clock.exhausted(now, now + 10, iterator)
    return now + 10


def test_the_turn_of_an_epoch_is_the_loaders_end_and_its_new_start():
    clock = new_clock()
    now = epoch_of(clock, 100)
    before = phases(clock)
    assert before["turn"] == 10  # its end
    epoch_of(clock, now + 50, iterator=2)
    after = phases(clock)
    assert clock.turns == 1
    assert after["turn"] == 10 + 10 + 10 + 10  # its end, the new start, the first batch, the new end
    assert after["input"] - before["input"] == 10  # the second batch
    assert after["script"] - before.get("script", 0) >= 50
    assert clock.script_outside >= 50


def test_validation_in_the_turn_is_no_part_of_it():
    clock = new_clock()
    now = epoch_of(clock, 100)
    clock.loader_started(now, now + 5, 2, 7)
    for _ in range(3):
        clock.fetched(now + 5, now + 15, 8, 7)
        now += 30
    clock.exhausted(now, now + 1, 7)
    epoch_of(clock, now + 1, iterator=2)
    assert clock.turns == 1
    assert phases(clock)["turn"] == 10 + 10 + 10 + 10
    assert phases(clock)["validation"] > 80


def test_what_the_script_does_between_steps_comes_with_the_steps():
    clock = new_clock()
    clock.loader_started(0, 1, 1, 1)
    now = 1
    for _ in range(5):
        clock.fetched(now, now + 2, 4, 1)
        steps_of(clock, now + 2)
        now += 100
    clock.main_ended(now)
    clock.finish(now + 30)
    assert phases(clock)["shutdown"] == 30
    assert 0 < clock.script_outside < 100  # after the last step alone
    assert phases(clock)["script"] > 4 * 80


def test_our_own_work_is_taken_out_of_whatever_it_fell_into():
    clock = new_clock()
    clock.worked(7)
    clock.fetched(100, 110, 4, 1)
    clock.worked(20)
    clock.compiled(5)
    clock.fetched(150, 160, 4, 1)  # before a boundary that says nothing of the batch
    steps_of(clock, 160)
    clock.worked(30)
    clock.finish(200)
    spent = phases(clock)
    assert (spent["settings"], spent["compile"], spent["startup"]) == (57, 5, 93)
    assert sum(clock.totals) == 200


def validated(clock, now, iterator, whole=True):
    clock.loader_started(now, now, 9, iterator)
    clock.fetched(now, now + 5, 8, iterator)
    if whole:
        clock.exhausted(now + 10, now + 10, iterator)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("ahead", [True, False])
def test_what_recurs_within_an_epoch_is_told_from_what_comes_at_its_end(ahead, whole):
    """Also where the last batch was fetched ahead, and where the evaluation is broken off."""
    clock = new_clock()
    for epoch in (0, 1000):
        clock.loader_started(epoch, epoch, 1, epoch + 1)
        if ahead:
            clock.fetched(epoch, epoch + 5, 4, epoch + 1)
        for step in range(4):
            now = epoch + 100 * step
            if ahead and step == 3:
                clock.exhausted(now, now, epoch + 1)
            else:
                clock.fetched(now, now + 5, 4, epoch + 1)
            steps_of(clock, now + 10)
            if step == 1:
                validated(clock, now + 50, epoch + 2)
                clock.saved(now + 70, now + 75)
                clock.saved(now + 75, now + 80)
        if not ahead:
            clock.exhausted(epoch + 450, epoch + 450, epoch + 1)
        validated(clock, epoch + 500, epoch + 3, whole)
        clock.saved(epoch + 570, epoch + 571)
    clock.loader_started(2000, 2000, 1, 2001)
    clock.fetched(2000, 2005, 4, 2001)
    steps_of(clock, 2010)
    seen = {name: work.told() for name, work in clock.recurring.items()}
    assert seen["checkpoint"] == [2, 20, 2, 6]
    assert seen["validation"][0] == 2, seen
    assert seen["validation"][2:] == [2, 6]
    assert clock.evaluations == 4
