"""Observers on tensors step aside where copies and waiting are next to nothing, and look again now and then."""

import pytest

from _flatout_agent.core.patches import Patches
from _flatout_agent.timeline.hooks.hook_suspension import FEWEST_STEPS, FIRST_LOOK, REST, Resting
from _flatout_agent.timeline.phase_totals import COPY, FORWARD
from _flatout_agent.timeline.step_clock import StepClock

SECOND = 10**9


class Place:
    watched = "plain"


@pytest.fixture
def scene():
    patches = Patches()
    patches.put(Place, "watched", "ours")
    clock = StepClock(0)
    clock.steps = FEWEST_STEPS
    yield clock, patches, Resting(clock, patches).after_reading
    patches.resting = False
    patches.take_off()
    assert Place.watched == "plain"


def loop(clock, read, seconds, copying, start):
    for second in range(start, start + seconds):
        clock.totals[FORWARD] += int(SECOND * (1 - copying))
        clock.totals[COPY] += int(SECOND * copying)
        read(second * SECOND)
    return start + seconds


def test_next_to_nothing_is_not_watched_any_more(scene):
    clock, patches, read = scene
    now = loop(clock, read, FIRST_LOOK // SECOND, 0.001, 1)
    assert Place.watched == "ours"
    now = loop(clock, read, 2, 0.001, now)
    assert Place.watched == "plain"
    patches.put_back()  # as after a compilation
    assert Place.watched == "plain"
    now = loop(clock, read, REST // SECOND - 1, 0, now)
    assert Place.watched == "ours"
    loop(clock, read, 1, 0.001, now)
    assert Place.watched == "plain"


def test_what_has_something_to_tell_stays(scene):
    clock, _, read = scene
    now = loop(clock, read, 20, 0.05, 1)
    assert Place.watched == "ours"
    now = loop(clock, read, 1, 0.0, now)
    now = loop(clock, read, 10, 0.0, now)
    assert Place.watched == "plain"
    while Place.watched == "plain":
        now = loop(clock, read, 1, 0, now)
    loop(clock, read, 5, 0.05, now)
    assert Place.watched == "ours"


def test_not_before_the_first_steps(scene):
    clock, _, read = scene
    clock.steps = 3
    loop(clock, read, 30, 0, 1)
    assert Place.watched == "ours"
