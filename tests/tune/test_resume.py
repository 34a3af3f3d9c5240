"""A journal is all that a search needs to go on: from any prefix to the same end."""

import json

import pytest
from imagined import Machine, plan, search

from flatout.base.errors import RecordError
from flatout.base.records import decode, dump
from flatout.tune.journal import TuneLine, line_of, read_lines
from flatout.tune.model import Finished, Status
from flatout.tune.search import Search


@pytest.fixture(scope="module")
def whole():
    machine = Machine(launch=9, device=8, prepare=15, drift=-0.0005, faults={("channels_last", "on"): Status.SEGFAULT})
    wanted = plan(budget_s=300.0)
    end, segments, results = search(machine, wanted)
    lines = [line_of(TuneLine(plan=wanted))]
    lines += [line_of(TuneLine(segment=s, result=r)) for s, r in zip(segments, results, strict=True)]
    return end, segments, lines


def test_from_any_prefix_to_the_same_end(whole):
    end, segments, lines = whole
    _, every = read_lines(lines)
    for cut in range(0, len(every) + 1, 7):
        wanted, results = read_lines(lines[: cut + 1])
        resumed = Search(wanted)
        step = resumed.next(results)
        for number in range(cut, len(every)):
            assert step == segments[number]
            step = resumed.next(every[: number + 1])
        assert step == end


def test_the_next_segment_is_a_function_of_the_results(whole):
    _, segments, lines = whole
    wanted, results = read_lines(lines)
    one = Search(wanted)
    for number in (30, 5, 60, 0):
        assert one.next(results[:number]) == segments[number]


def test_a_line_cut_short_is_left_out(whole):
    _, segments, lines = whole
    wanted, results = read_lines([*lines[:20], lines[20][: len(lines[20]) // 2]])
    assert len(results) == 19
    assert Search(wanted).next(results) == segments[19]


def test_a_damaged_line_in_the_middle_is_refused(whole):
    _, _, lines = whole
    with pytest.raises(RecordError):
        read_lines([*lines[:3], "{", *lines[4:]])
    with pytest.raises(RecordError):
        read_lines(lines[1:3])


def test_a_newer_line_is_refused(whole):
    _, _, lines = whole
    newer = json.dumps({**json.loads(lines[-1]), "version": 99})
    with pytest.raises(RecordError):
        read_lines([*lines[:-1], newer])


def test_results_of_another_search_are_refused(whole):
    _, _, lines = whole
    wanted, results = read_lines(lines)
    with pytest.raises(RecordError):
        Search(wanted).next(results[5:])


def test_the_end_is_a_record(whole):
    end, _, lines = whole
    assert all(line.count("\n") == 1 for line in lines)
    assert decode(json.dumps(dump(end)), Finished) == end
