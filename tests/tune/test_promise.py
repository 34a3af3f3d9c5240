"""The model of a whole run: its parts add up, its bounds hold, and what is paid once has a break-even."""

import math
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flatout.base.records import Missing
from flatout.measure import promise
from flatout.measure.promise import EACH, ONCE, PARTS, Measured, Ratio, Seconds

seconds = st.floats(0.0, 1e4, allow_nan=False)
runs = st.lists(st.fixed_dictionaries(dict.fromkeys(PARTS, seconds)), min_size=1, max_size=5)
epochs = st.floats(0.1, 1e3)


def model(*parts, over=1.0):
    return promise.model_of([Measured(parts=promise.without_more(one), epochs=over) for one in parts])


@given(runs, epochs, epochs)
def test_parts_add_up_to_the_whole_and_bounds_enclose_it(measured, over, planned):
    told = model(*measured, over=over)
    whole = promise.total(told, planned)
    parts = promise.parts_of(told, planned)
    assert list(parts) == list(PARTS)
    assert math.isclose(math.fsum(parts.values()), whole.value, rel_tol=1e-9, abs_tol=1e-9)
    assert 0 <= whole.low <= whole.value * (1 + 1e-12)
    assert whole.value <= whole.high * (1 + 1e-12)


@given(runs)
def test_the_run_that_was_measured_is_given_back(measured):
    one = measured[0]
    told = model(one, over=3.0)
    assert math.isclose(promise.total(told, 3.0).value, math.fsum(one.values()), rel_tol=1e-9, abs_tol=1e-9)


@given(runs, runs, epochs)
def test_the_ratio_lies_in_its_interval(plain, tuned, planned):
    found = promise.speedup(model(*plain), model(*tuned), planned)
    if isinstance(found, Missing):
        assert not any(map(sum, (one.values() for one in plain))) or not any(map(sum, (one.values() for one in tuned)))
        return
    assert found.low <= found.value * (1 + 1e-12) <= found.high * (1 + 1e-9)


@given(st.floats(0.1, 1e3), st.floats(0.01, 1e2), st.floats(0.01, 0.99), st.floats(0.1, 1e3))
def test_at_the_break_even_both_take_the_same(start, each, share, built):
    plain, tuned = model({"start": start, "steps": each}), model({"start": start, "building": built, "steps": each * share})
    repaid = promise.repaid_after(plain, tuned)
    assume(repaid is not None)
    assert math.isclose(promise.total(plain, repaid).value, promise.total(tuned, repaid).value, rel_tol=1e-6)
    assert promise.total(tuned, 2 * repaid).value < promise.total(plain, 2 * repaid).value


def test_what_is_never_repaid_and_what_needs_no_repaying():
    plain = model({"start": 1.0, "steps": 2.0})
    assert promise.repaid_after(plain, model({"start": 1.0, "building": 5.0, "steps": 2.5})) is None
    assert promise.repaid_after(plain, model({"start": 0.5, "steps": 1.0})) == 0.0
    assert promise.repaid_after(plain, model({"start": 1.0, "building": 3.0, "steps": 1.0})) == pytest.approx(3.0)


def test_a_build_pays_in_a_long_run_only():
    plain, tuned = model({"start": 4.0, "steps": 10.0}), model({"start": 4.0, "building": 30.0, "steps": 2.0})
    assert promise.speedup(plain, tuned, 2.0).value < 1
    assert promise.speedup(plain, tuned, 10.0).value > 1
    assert promise.loop_speedup(plain, tuned) == pytest.approx(5.0)


def test_more_runs_narrow_the_bounds_and_spread_widens_them():
    alone, twice, four = (promise.bounded([10.0] * count) for count in (1, 2, 4))
    assert alone.high > twice.high > four.high > 10.0
    assert promise.bounded([8.0, 12.0]).high > twice.high


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_bounds_hold_for_runs_that_scatter_as_usual(count):
    """Nine of ten at least: the ratio of two noisy means around a known truth."""
    draw = random.Random(7)
    inside = 0
    for _ in range(600):
        told = [
            promise.bounded([length * math.exp(draw.gauss(0, promise.USUAL_SPREAD)) for _ in range(count)])
            for length in (60.0, 20.0)
        ]
        found = promise.ratio_of(*told)
        inside += found.low <= 3.0 <= found.high
    assert inside >= 0.9 * 600


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("spread", [0.005, 0.02, promise.USUAL_SPREAD])
def test_the_bounds_hold_for_runs_that_are_compared(count, spread):
    draw = random.Random(7)
    inside = 0
    for _ in range(600):
        runs = [[length * math.exp(draw.gauss(0, spread)) for _ in range(count)] for length in (60.0, 20.0)]
        found = promise.speedup_of(*(math.fsum(side) / count for side in runs), runs)
        inside += found.low <= 3.0 <= found.high
    assert inside >= 0.9 * 600


def test_runs_that_agree_are_trusted_more_than_what_is_usual():
    """Two pairs that agree show 6 %, four 3 %; one alone shows nothing under an eighth."""
    alone, two, four = (promise.speedup_of(10.0, 10.0, [[10.0] * count] * 2).high for count in (1, 2, 4))
    assert alone > 1.12
    assert 1.05 < two < 1.06
    assert four < 1.025


def test_of_two_that_disagree_the_lower_is_promised():
    high, low = Ratio(value=5.0, low=4.6, high=5.4), Ratio(value=3.0, low=2.8, high=3.2)
    assert promise.lower_of(high, low) == low
    assert promise.lower_of(low, high) == low
    near = Ratio(value=4.7, low=4.4, high=5.0)
    assert promise.lower_of(high, near) == high


def test_what_promises_were_missed_by_before_widens_the_next():
    found = Ratio(value=4.0, low=3.8, high=4.2)
    assert promise.widened(found, [0.5, 2.0]) == found
    assert promise.widened(found, [1.0, 1.0, 1.01]) == found
    wide = promise.widened(found, [0.8, 0.7, 0.9, 1.0])
    assert wide.low < 3.0 < 5.0 < wide.high
    assert wide.value == 4.0


def test_nothing_timed_is_no_ratio():
    nothing = Seconds(value=0.0, low=0.0, high=0.0)
    assert isinstance(promise.ratio_of(nothing, nothing), Missing)
    assert isinstance(promise.speedup_of(1.0, 1.0, [[1.0], []]), Missing)
    assert isinstance(promise.speedup_of(1.0, 0.0, [[1.0], [0.0]]), Missing)
    assert set(ONCE) | set(EACH) == set(PARTS)
