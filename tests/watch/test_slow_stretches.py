"""Why a stretch was slow: planted causes are named with their share, and runs without one are left alone."""

from __future__ import annotations

import pytest
from planted_stretches import CALM, Planted, make

from flatout.base.records import Missing
from flatout.doctor.registry import find
from flatout.machine.telemetry import CardSample, Sample
from flatout.watch.causes import CODES, slow_stretches
from flatout.watch.moments import Span, lay_together
from flatout.watch.stretches import change_points

# What is planted, by how much, and what it is to be called.
CAUSES = [
    ("thermal-slowdown", 0.75),
    ("power-slowdown", 0.7),
    ("low-clocks", 0.6),
    ("another-process", 0.5),
    ("waiting-for-data", 0.4),
    ("slow-storage", 0.5),
    ("cpu-contended", 0.5),
    ("allocator-retries", 0.3),
    ("memory-full", 0.6),
    ("checkpoint", 0.4),
    ("validation", 0.5),
    ("garbage-collection", 0.3),
    ("host-swapping", 0.5),
    ("compiling", 0.5),
]


def near(slow, first, last, trace):
    """The stretch is found where it was planted, to a few seconds."""
    spans = [moment.span for moment in trace.moments]
    starts = [span.start for span in spans]
    assert abs(starts.index(slow.start) - first) <= 3
    ends = [span.end for span in spans]
    assert abs(ends.index(slow.end) + 1 - last) <= 3


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("cause", "by"), CAUSES)
def test_every_cause_by_itself(cause, by, seed):
    trace = make(seed, 240, [Planted(cause, 90, 170, by)], **CALM)
    (slow,) = slow_stretches(trace.moments)
    near(slow, 90, 170, trace)
    (named,) = slow.causes
    assert named.name == cause
    assert named.share == pytest.approx(1, abs=0.05)
    assert named.certain
    assert slow.unseen <= 0.05
    assert named.code == CODES.get(cause)
    assert named.evidence


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_that_changed_is_no_cause(seed):
    trace = make(seed, 240, [Planted("not-seen", 90, 170, 0.4)], **CALM)
    (slow,) = slow_stretches(trace.moments)
    near(slow, 90, 170, trace)
    assert slow.causes == []
    assert slow.unseen == 1
    assert slow.slower == pytest.approx(0.37, abs=0.06)


def test_work_that_is_bound_by_memory_loses_less_than_the_clock():
    trace = make(3, 240, [Planted("memory-bound-thermal", 90, 170, 0.6)], **CALM)
    (slow,) = slow_stretches(trace.moments)
    assert [cause.name for cause in slow.causes] == ["thermal-slowdown"]
    assert slow.causes[0].share == pytest.approx(1, abs=0.05)


COMBINED = [
    [("thermal-slowdown", 0.75), ("waiting-for-data", 0.3)],
    [("another-process", 0.4), ("waiting-for-data", 0.4)],
    [("thermal-slowdown", 0.75), ("another-process", 0.5)],
    [("checkpoint", 0.4), ("thermal-slowdown", 0.7)],
    [("garbage-collection", 0.3), ("slow-storage", 0.3)],
    [("power-slowdown", 0.8), ("checkpoint", 0.3), ("waiting-for-data", 0.3)],
    [("low-clocks", 0.7), ("not-seen", 0.4)],
    [("waiting-for-data", 0.4), ("not-seen", 0.4)],
]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("planted", COMBINED, ids=lambda planted: "+".join(name for name, _ in planted))
def test_causes_at_the_same_time(planted, seed):
    trace = make(seed, 240, [Planted(name, 90, 170, by) for name, by in planted], **CALM)
    (slow,) = slow_stretches(trace.moments)
    true = trace.shares()
    unseen = true.pop("not-seen", 0.0)
    assert {cause.name: cause.share for cause in slow.causes} == pytest.approx(true, abs=0.05)
    assert slow.unseen == pytest.approx(unseen, abs=0.05)


def test_two_that_came_at_different_times_are_told_apart_and_two_that_did_not_are_said_to_be():
    apart = [Planted("another-process", 90, 170, 0.3), Planted("allocator-retries", 130, 170, 0.3)]
    trace = make(1, 240, apart, **CALM)
    found = slow_stretches(trace.moments)
    assert {cause.name for slow in found for cause in slow.causes} == {"another-process", "allocator-retries"}
    assert found[0].causes[0].name == "another-process"
    together = [Planted("another-process", 90, 170, 0.3), Planted("allocator-retries", 90, 170, 0.3)]
    (slow,) = slow_stretches(make(1, 240, together, **CALM).moments)
    assert {cause.name for cause in slow.causes} == {"another-process", "allocator-retries"}
    assert not any(cause.certain for cause in slow.causes)


def test_two_stretches_with_their_own_causes():
    planted = [Planted("another-process", 60, 110, 0.4), Planted("waiting-for-data", 180, 230, 0.5)]
    first, second = slow_stretches(make(5, 300, planted, **CALM).moments)
    assert [cause.name for cause in first.causes] == ["another-process"]
    assert [cause.name for cause in second.causes] == ["waiting-for-data"]


def test_who_was_there_all_along_is_no_cause():
    trace = make(4, 240, [Planted("not-seen", 90, 170, 0.4)], **{**CALM, "neighbour": True, "power_bound": True})
    (slow,) = slow_stretches(trace.moments)
    assert slow.causes == []


def test_the_one_that_came_is_named_and_not_the_one_that_was_there():
    trace = make(4, 240, [Planted("another-process", 90, 170, 0.4)], **{**CALM, "neighbour": True})
    (slow,) = slow_stretches(trace.moments)
    assert slow.causes[0].evidence["processes"] == ["python3 (777)"]


def test_a_stretch_that_still_goes_on_and_one_that_takes_most_of_the_time():
    (slow,) = slow_stretches(make(6, 200, [Planted("thermal-slowdown", 90, 200, 0.7)], **CALM).moments)
    assert slow.causes[0].name == "thermal-slowdown"


def test_a_run_that_begins_slowly_or_has_hardly_begun_is_left_alone():
    assert slow_stretches(make(7, 200, [Planted("not-seen", 0, 60, 0.6)], **CALM).moments) == []
    assert slow_stretches(make(7, 8, **CALM).moments) == []
    assert slow_stretches([]) == []


def test_a_rhythm_is_no_slow_stretch():
    """Every minute ten seconds of harder batches: that is how this training is."""
    planted = [Planted("not-seen", start, start + 12, 0.4) for start in range(40, 280, 60)]
    assert slow_stretches(make(8, 300, planted, **CALM).moments) == []


@pytest.mark.parametrize("first", range(98, 106))
def test_a_change_is_found_where_it_is_and_once(first):
    assert change_points([0.0] * first + [0.4] * 70 + [0.0] * 61) == [first, first + 70]


def test_where_no_look_fell_into_a_span_the_nearest_one_tells():
    def look(t, clock):
        return Sample(t=t, cards=(CardSample(index=0, uuid="GPU-0", sm_clock_mhz=clock),))

    spans = [Span(start=t, end=t + 1, steps=10) for t in range(5)]
    looks = [look(0.5, 1000), look(2.1, 1200), look(9.0, 5000)]
    clocks = [moment.seen.clock_mhz for moment in lay_together(spans, looks, "GPU-0")]
    assert clocks == [1000, 1200, 1200, 1200, 1200]
    assert isinstance(lay_together(spans, [look(30.0, 1000)], "GPU-0")[0].seen.clock_mhz, Missing)
    assert isinstance(lay_together(spans, looks, "GPU-1")[0].seen.clock_mhz, Missing)


def nulls(seeds, seconds):
    return [seed for seed in seeds if slow_stretches(make(seed, seconds).moments)]


def test_runs_without_a_cause_are_left_alone():
    assert nulls(range(120, 200), 400) == []


@pytest.mark.thorough
def test_two_hundred_runs_without_a_cause_are_left_alone():
    assert len(nulls(range(200), 400)) <= 1  # none when this was written


@pytest.mark.thorough
def test_causes_in_restless_runs():
    """Noise, drift and periodic work of any kind: a few are missed, and none is given a wrong name."""
    named = near_enough = 0
    for cause, by in CAUSES:
        for seed in range(5000, 5015):
            found = slow_stretches(make(seed, 300, [Planted(cause, 120, 200, by)]).moments)
            assert all(slow.causes[0].name == cause for slow in found if slow.causes)
            causes = [slow.causes[0] for slow in found if slow.causes][:1]
            named += len(causes)
            near_enough += any(abs(one.share - 1) <= 0.05 for one in causes)
    assert named >= 200
    assert near_enough >= 190


def test_every_code_is_a_page_of_the_doctor():
    assert all(find(code) is not None for code in CODES.values())
