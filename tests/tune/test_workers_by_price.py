"""How many workers, and how many looks, a search takes by what they cost: pieces of it, without a machine."""

import pytest
from imagined import Machine, plan, search

from flatout.measure.statistics import PAIRS_AT_LOOK
from flatout.tune.batch.growth import as_the_loop_would, would_wait
from flatout.tune.search.compute_knobs import looks_at
from flatout.tune.search.input_knobs import workers_at_last
from flatout.tune.search.questions_and_answers import BatchProbe, Ceilings, Mode, SegmentResult, Status
from flatout.tune.search.search_state import Course
from flatout.tune.search.worker_search import by_supply, workers_for


def test_no_worker_of_a_rung_is_saved_while_the_compute_side_may_become_faster():
    """Seven would do for the plain loop; with bf16 and graphs it takes three times as much."""
    machine = Machine(batch=16, launch=9, device=6, prepare=45, bf16=0.5, compiled=0.8, build_s=8.0, cores=16, seed=2)
    end, segments, _ = search(machine, plan(budget_s=228.0, timed_s=0.5, worker_cap=14))
    tried = [int(one.knobs["workers"]) for one in segments if one.mode is Mode.REAL and "workers" in one.knobs]
    assert tried[0] == 8
    assert 7 not in tried
    assert machine.rate(end.profile) > 0.9 * machine.optimum(plan(worker_cap=14), range(15))


@pytest.mark.parametrize(("budget_s", "start_s", "all_of_them"), [(400.0, 0.05, True), (90.0, 7.0, False)])
def test_dear_children_are_looked_at_fewer_times(budget_s, start_s, all_of_them):
    course = Course(plan(budget_s=budget_s, start_s=start_s))
    assert looks_at(course, restarts=False, mode=Mode.REAL) == PAIRS_AT_LOOK
    looks = looks_at(course, restarts=True, mode=Mode.REAL)
    assert (looks == PAIRS_AT_LOOK) is all_of_them
    assert looks == PAIRS_AT_LOOK[: len(looks)]
    assert looks


def test_as_many_workers_as_cores_are_not_the_most_before_more_were_tried():
    """Those that wait for a disk need no core each; that more give no more must have been seen."""
    course = Course(plan(budget_s=90.0, workers=2, worker_cap=2))
    course.ceilings = Ceilings(real=100.0, with_copy=1000.0, supply=120.0)
    course.supplies, course.input_matched = {2: 120.0}, True
    asked = next(by_supply(course, course.offer("workers")), None)
    assert (asked.mode, asked.knobs["workers"]) == (Mode.SUPPLY, "4")
    course.most_supply = 120.0
    assert next(by_supply(course, course.offer("workers")), None) is None


def test_without_workers_a_faster_loop_is_no_loop_that_waits():
    """Of workers that were dropped it is known what they gave, and that says nothing of the loop that fetches by itself."""
    course = Course(plan(budget_s=90.0))
    course.ceilings, course.most_supply = Ceilings(real=90.0, with_copy=1000.0), 100.0
    batch = course.offer("batch_size")
    assert not would_wait(course, batch, 64)
    course.keep("workers", "2")
    assert would_wait(course, batch, 64)
    course.supplies = {2: 2000.0}
    assert not would_wait(course, batch, 64)


def test_workers_that_give_less_than_the_loop_fetches_by_itself_are_not_wanted():
    """Seen with batches that cost next to nothing: 106,000 samples/s without workers, 15,000 with two."""
    course = Course(plan(budget_s=90.0, worker_cap=2))
    course.ceilings, course.input_matched = Ceilings(real=11_000.0, with_copy=18_000.0), True
    course.supplies, course.supplied_with = {0: 106_000.0, 1: 8_000.0, 2: 15_000.0}, {0: {}, 1: {}, 2: {}}
    wanted, probes = ends_with(workers_for(course, 800_000.0)), [16, 256, 4096]
    assert wanted == {}
    rates = {16: 27_000.0, 256: 340_000.0, 4096: 800_000.0}
    asked = as_the_loop_would(course, [BatchProbe(size=size, ran=True, rate=rates[size]) for size in probes])
    seen = {probe.size: probe.rate for probe in ends_with(asked)}
    assert seen[16] == pytest.approx(21_500, rel=0.01)
    assert seen[4096] < 1.2 * seen[256] < 106_000
    course.supplies.update({1: 150_000.0, 2: 300_000.0})
    assert ends_with(workers_for(course, 800_000.0)) == {"workers": "2"}


def ends_with(steps):
    """What a course of steps comes to that needs no segment, or only ones that are refused."""
    try:
        segment = next(steps)
        while True:
            segment = steps.send(SegmentResult(id=segment.id, status=Status.REFUSED, took_s=0.1, code="not-now"))
    except StopIteration as end:
        return end.value


@pytest.mark.parametrize("code", ["no-time", "no-more-supply"])
def test_workers_for_which_there_was_no_time_have_a_last_chance(code):
    course = Course(plan(budget_s=90.0))
    course.ceilings = Ceilings(real=100.0, with_copy=1000.0, supply=120.0)
    course.supplies = {0: 120.0}
    course.input_matched = True
    figures = {"needs_s": 1.0, "left_s": 0.0} if code == "no-time" else {"workers": 0, "supply": 120.0}
    course.decide(course.offer("workers"), "more", code, figures)
    asked = next(workers_at_last(course), None)
    if code == "no-time":
        assert int(asked.knobs["workers"]) >= 2
    else:
        assert asked is None, "it was judged"
