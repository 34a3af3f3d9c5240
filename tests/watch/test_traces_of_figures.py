"""Figures over time: bounded, with holes where nothing was given, and the same for whoever draws them."""

from __future__ import annotations

import pytest

from flatout.base.records import Missing
from flatout.machine.telemetry import CardSample, HostSample, Sample
from flatout.watch.moments import Span
from flatout.watch.view import plots
from flatout.watch.view.rows import width_of
from flatout.watch.view.traces import COARSE_KEPT, FINE_KEPT, Traces


def sample(t, busy=50, **host):
    return Sample(t=float(t), cards=(CardSample(index=0, utilisation=busy),), host=HostSample(**host))


def test_a_figure_that_was_not_given_is_a_hole_and_no_zero():
    traces = Traces()
    for second in range(1, 61):
        traces.add(sample(second, Missing("nvml-gpu-lost") if 20 < second <= 40 else 50))
    seen = traces.window("card.0.utilisation", 60, 60, 6)
    assert seen == [50, 50, None, None, 50, 50]
    assert traces.window("card.0.power_w", 60, 60, 3) == [None] * 3
    assert traces.window("card.7.utilisation", 60, 60, 3) == [None] * 3
    assert traces.window("card.0.utilisation", 120, 60, 2) == [None, None]  # nobody has looked since


def test_more_columns_than_looks_leave_no_holes():
    traces = Traces()
    for second in range(1, 31):
        traces.add(sample(second, second))
    assert None not in traces.window("card.0.utilisation", 30, 28, 150)


def test_days_take_no_more_room_than_hours():
    traces = Traces()
    for second in range(0, 3 * COARSE_KEPT * 10, 5):
        traces.add(sample(second, 40 + second % 20, cpu_percent=10.0))
    assert len(traces._fine.times) <= 1.25 * FINE_KEPT
    assert len(traces._coarse.times) <= 1.25 * COARSE_KEPT
    end = 3 * COARSE_KEPT * 10
    assert traces.window("card.0.utilisation", end, 43_200, 50) == pytest.approx([47.5] * 50, abs=0.5)
    assert traces.began() > 0


def test_it_begins_with_what_was_kept():
    """The cards of the history have no numbers of their own."""
    before = [Sample(t=float(t), cards=(CardSample(index=0, uuid="GPU-b", utilisation=t),)) for t in range(1, 11)]
    now = Sample(
        t=11.0, cards=(CardSample(index=0, uuid="GPU-a", utilisation=99), CardSample(index=1, uuid="GPU-b", utilisation=99))
    )
    traces = Traces()
    traces.begin_with([*before, Sample(t=10.5, cards=(CardSample(index=0, uuid="GPU-gone", utilisation=7),))], now)
    traces.add(now)
    assert traces.window("card.1.utilisation", 10, 10, 2) == [3, 8]
    assert traces.window("card.0.utilisation", 10, 10, 2) == [None, None]
    assert traces.names() >= {"card.0.utilisation", "card.1.utilisation"}


def test_looks_that_come_late_or_twice_are_left_out():
    traces = Traces()
    for t in (1, 2, 2, 1, 3):
        traces.add(sample(t))
    assert list(traces._fine.times) == [1, 2, 3]


def test_a_run_is_shown_from_its_spans_and_another_one_begins_anew():
    spans = [
        Span(start=10.0 * place, end=10.0 * place + 10, steps=100, samples=800, phases={"input": 5.0, "forward": 5.0})
        for place in range(6)
    ]
    traces = Traces()
    for known in (3, 6, 6):
        traces.add_spans("one", spans[:known])
    assert traces.window("run.step_s", 60, 60, 12) == pytest.approx([0.1] * 12)
    assert traces.window("run.input_share", 60, 60, 3) == pytest.approx([50.0] * 3)
    starting = Span(start=60.0, end=80.0, steps=100, phases={"startup": 10.0, "forward": 10.0})
    traces.add_spans("one", [*spans, starting])
    assert traces.window("run.step_s", 80, 20, 1) == pytest.approx([0.1])  # the start-up is no part of a step
    traces.add_spans("two", spans[:1])
    assert traces.window("run.step_s", 60, 60, 2) == [pytest.approx(0.1), None]


# -- how they are drawn -------------------------------------------------------------------------------------------------------


def dots(rows):
    return sum((ord(letter) - 0x2800).bit_count() for row in rows for one in row for letter in one.text if letter != " ")


@pytest.mark.parametrize(("value", "count"), [(None, 0), (0.0, 1), (25.0, 2), (50.0, 4), (100.0, 8), (1e9, 8)])
def test_an_area(value, count):
    """One column, two rows: eight dots. What is there has a dot at the least; what is not there has none."""
    rows = plots.area([value], 2, (0.0, 100.0), "busy")
    assert dots(rows) == count
    assert [width_of(row) for row in rows] == [1, 1]


def test_a_line_has_no_gaps():
    rows = plots.line([0.0, 100.0, 0.0], 3, (0.0, 100.0), "step")
    assert dots(rows) >= 12
    assert [width_of(row) for row in rows] == [2, 2, 2]


@pytest.mark.parametrize("width", [1, 6, 40])
def test_a_bar_is_as_wide_as_it_should_be_and_shows_what_is_small(width):
    row = plots.bar([(0.001, "own", "█"), (0.5, "other", "▓")], width)
    assert width_of(row) == width
    assert row[0].text == "█"
    assert width_of(plots.bar([(0.7, "a", "█"), (0.7, "b", "▓")], width)) == width


@pytest.mark.parametrize(("most", "top"), [(0.0795, 0.08), (65, 80), (101, 120), (999, 1000), (3e8, 3e8), (0.0, 1e-6)])
def test_an_axis_ends_at_a_round_number(most, top):
    assert plots.top_of([most, None], 1e-6) == pytest.approx(top)
    assert plots.top_of([], 1e-6) == 1e-6
    low, high = plots.range_of([2.0, 3.0, None])
    assert 0 <= low < 2 < 3 < high
