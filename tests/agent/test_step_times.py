"""How long steps took, by the host's clock and by a card's events; there is no card here, so its events are made up."""

import types

import pytest

from _flatout_agent.trial.segment_step_times import MOST_TOLD, FirstSteps, StepTimes

MS = 1_000_000


def stepped(times, steps, wait=0):
    now = waited = 0
    far = []
    for spent in steps:
        now, waited = now + spent, waited + wait
        far.append(times.ended(now, waited))
    return far


def test_a_step_with_something_else_in_it_is_seen_when_it_ends():
    times = StepTimes(None, False, 0, 0)
    far = stepped(times, [10 * MS] * 8 + [400 * MS] + [10 * MS] * 3)
    assert [place for place, one in enumerate(far) if one] == [8]
    stepped(times, [])
    assert times.told()["step_times"] == [0.01] * 8 + [0.4] + [0.01] * 3


def test_what_a_step_waited_for_its_batch_is_no_reason():
    times = StepTimes(None, False, 0, 0)
    assert not any(stepped(times, [10 * MS] * 6, wait=9 * MS))
    now, waited = 60 * MS, 54 * MS
    assert not times.ended(now + 500 * MS, waited + 499 * MS)


def test_more_steps_than_are_told_are_added_up():
    times = StepTimes(None, False, 0, 0)
    stepped(times, [MS] * (3 * MOST_TOLD))
    told = times.told()
    assert len(told["step_times"]) == len(told["step_waits"]) == MOST_TOLD
    assert sum(told["step_times"]) == pytest.approx(3 * MOST_TOLD / 1000)


class Event:
    clock = 0.0
    ready = True

    def __init__(self, enable_timing):
        self.at = None

    def record(self, stream):
        Event.clock += 25.0
        self.at = Event.clock

    def query(self):
        return Event.ready

    def elapsed_time(self, other):
        return other.at - self.at


CARD = types.SimpleNamespace(cuda=types.SimpleNamespace(Event=Event, current_stream=lambda: None))


def test_on_a_card_the_device_says_how_long_a_step_took():
    """The host queues fifty steps in a moment and then waits for all of them: no step of these is out of the ordinary."""
    times = StepTimes(CARD, True, 0, 0)
    stepped(times, [MS // 10] * 49 + [1200 * MS])
    assert times.told()["step_times"] == [0.025] * 50


def test_where_the_device_is_not_done_the_host_says_it():
    times = StepTimes(CARD, True, 0, 0)
    stepped(times, [10 * MS] * 3)
    Event.ready = False
    try:
        assert times.told()["step_times"] == [0.01] * 3
    finally:
        Event.ready = True


@pytest.mark.parametrize(
    ("batches", "told"),
    [((1, 2, 3, 4), 1.0), ((8, 16, 32, 40, 48), 8.0), ((3, 4, 5, 6, 7), 1.0), ((0, 0, 0), None), ((0.5, 1, 1.5, 2), 0.5)],
)
def test_batches_of_a_step_from_the_first_ones(batches, told):
    """Also where a gradient scaler leaves out one of them, whose batches the next step has."""
    clock = types.SimpleNamespace(steps=0, batches=0, beside=2)
    card = types.SimpleNamespace(is_initialized=lambda: False)
    first = FirstSteps(types.SimpleNamespace(cuda=card))
    first.tape = types.SimpleNamespace(clock=clock, tell=lambda: None)
    for count in batches:
        clock.steps, clock.batches = clock.steps + 1, count + 2
        first.ended()
    assert first.told().get("batches_a_step") == told
