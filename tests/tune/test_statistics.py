"""The interval of a ratio: what it promises, held by simulation, and what it must never do."""

import math
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from noisy import Noise, pairs_of

from flatout.base.records import Missing
from flatout.measure import statistics
from flatout.measure.drift import drift_of, throttling
from flatout.measure.intervals import student
from flatout.measure.statistics import (
    FADES,
    PAIRS_AT_LOOK,
    Answer,
    Pair,
    Window,
    compare,
    noise_after,
    noise_floor,
    plausible_gain,
    spread_of_pairs,
    throughput,
)

WORLDS = {
    "white": {"memory": 0.0, "stalls": 0.0, "tails": 30},
    "with a memory, heavy tails and stalls": {},
    "with a long memory": {"memory": 0.8},
    "restless": {"memory": -0.3},
    "very heavy tails": {"tails": 3, "memory": 0.3},
    "drifting": {"drift": -0.003},
    "throttled half way": {"fall_at": 15},
    "three times as loud": {"sigma": 0.03},
}
RUNS = 60


def stopped(noise, ratio, floor):
    """A comparison as the search runs it: three looks, an end when decided or hopeless."""
    pairs = pairs_of(noise, ratio, PAIRS_AT_LOOK[-1])
    for count in PAIRS_AT_LOOK:
        found = compare(pairs[:count], floor)
        hope = plausible_gain(pairs[:count])
        if found.answer in (Answer.FASTER, Answer.SLOWER) or (isinstance(hope, float) and hope < 0.02):
            break
    return found


@cache
def outcomes(world, ratio):
    found = []
    for seed in range(RUNS):
        noise = Noise(1000 * seed + 7, **WORLDS[world])
        floor = spread_of_pairs([math.exp(noise()) for _ in range(8)])
        found.append(stopped(noise, ratio, floor))
    return found


@pytest.mark.parametrize("world", WORLDS)
def test_the_interval_holds_the_truth(world):
    every = [(found, ratio) for ratio in (1.0, 1.03) for found in outcomes(world, ratio)]
    held = [found.lower <= ratio <= found.upper for found, ratio in every if isinstance(found.lower, float)]
    assert len(held) > 0.9 * len(every)
    assert sum(held) / len(held) >= 0.93


@pytest.mark.parametrize("world", WORLDS)
def test_without_an_effect_nothing_is_claimed(world):
    claims = [found.answer is Answer.FASTER for found in outcomes(world, 1.0)]
    assert sum(claims) / RUNS <= 0.05


@pytest.mark.parametrize("world", WORLDS)
def test_three_per_cent_are_found(world):
    found = sum(found.answer is Answer.FASTER for found in outcomes(world, 1.03)) / RUNS
    assert found >= (0.4 if world == "three times as loud" else 0.85)


def known_noise(spread, comparisons, seed=5, **world):
    """What is believed of the noise after an early figure and some comparisons in that world."""
    noise, known = Noise(seed, **world), statistics.Noise(spread, 7)
    for _ in range(comparisons):
        known = noise_after(known, pairs_of(noise, 1.1, 4))
    return known.spread


def test_an_early_unrest_is_forgotten_and_a_later_one_noticed():
    quiet, loud = {"sigma": 0.01, "stalls": 0.0, "tails": 30}, {"sigma": 0.1, "stalls": 0.0, "tails": 30}
    assert known_noise(0.25, 0, **quiet) == 0.25
    forgetting = [known_noise(0.25, count, **quiet) for count in range(12)]
    assert forgetting == sorted(forgetting, reverse=True)
    assert forgetting[-1] < 0.08
    assert known_noise(0.01, 3, **loud) > 0.04


@given(st.floats(0.001, 0.5))
def test_noise_stays_where_the_pairs_agree_with_it(spread):
    # Two above and two below their mean by what makes their deviation just this.
    pairs = [Pair(100.0, 100.0 * math.exp(sign * spread * math.sqrt(3) / 2), True) for sign in (1, -1, -1, 1)]
    known = noise_after(statistics.Noise(spread, 7), pairs)
    assert known.spread == pytest.approx(spread, rel=0.05)
    assert known.weight == FADES * 7 + 3


def test_too_few_pairs_tell_nothing_of_the_noise():
    before = statistics.Noise(0.02, 7)
    assert noise_after(before, pairs_of(Noise(1, sigma=0.3), 1.0, 3)) == before


def test_where_no_noise_was_known_it_is_that_of_the_pairs():
    """Of two measurements with a scatter of 0.1 each: 0.14; seven steps tell it to a half, where no stall is among them."""
    found = [noise_after(statistics.Noise(), pairs_of(Noise(seed, sigma=0.1, memory=0.0, stalls=0.0, tails=30), 1.0, 8))
             for seed in range(20)]  # fmt: skip
    assert math.fsum(one.spread for one in found) / len(found) == pytest.approx(0.1 * math.sqrt(2), rel=0.15)
    assert all(0.07 < one.spread < 0.28 for one in found)


def test_throughput_is_samples_over_seconds():
    # One stall of a second in four windows: a median of rates would say 100 samples/s.
    windows = [Window(100, 1.0), Window(100, 1.0), Window(100, 1.0), Window(100, 2.0)]
    assert throughput(windows) == 80.0
    assert throughput([]) == Missing("nothing-timed")
    assert throughput([Window(0, 1.0)]) == Missing("nothing-timed")


RATES = st.floats(1.0, 1e5)


@st.composite
def made_pairs(draw, least=4, most=12):
    count = draw(st.integers(least, most))
    return [Pair(draw(RATES), draw(RATES), draw(st.booleans())) for _ in range(count)]


@given(made_pairs(), st.floats(0.01, 100))
def test_units_do_not_matter(pairs, factor):
    scaled = [Pair(pair.a * factor, pair.b * factor, pair.a_first) for pair in pairs]
    one, other = compare(pairs, 0.01), compare(scaled, 0.01)
    if isinstance(one.ratio, float) and isinstance(other.ratio, float) and one.pairs == other.pairs:
        assert math.isclose(one.ratio, other.ratio, rel_tol=1e-6)


@given(made_pairs())
def test_the_bounds_enclose_the_ratio_and_do_not_change_from_call_to_call(pairs):
    found = compare(pairs, 0.01)
    assert found == compare(list(pairs), 0.01)
    if isinstance(found.lower, float):
        assert found.lower <= found.ratio <= found.upper
        assert found.answer is not Answer.FASTER or found.lower > 1
        assert found.answer is not Answer.SLOWER or found.upper < 1


@given(made_pairs(least=0, most=3))
def test_too_little_is_unknown(pairs):
    found = compare(pairs, 0.01)
    assert found.answer is Answer.UNKNOWN
    assert isinstance(found.lower, Missing)


@given(st.floats(0.5, 2), st.floats(-0.01, 0.01), st.sampled_from([4, 8, 12]))
def test_a_straight_drift_cancels(ratio, slope, count):
    pairs = []
    for index in range(count):
        a_first = (True, False, False, True)[index % 4]
        first, second = math.exp(slope * 2 * index), math.exp(slope * (2 * index + 1))
        pairs.append(Pair(first, ratio * second, True) if a_first else Pair(second, ratio * first, False))
    assert math.isclose(compare(pairs, 0.001).ratio, ratio, rel_tol=1e-3 if count > 4 else 1e-9)


def test_a_gain_inside_the_noise_floor_is_not_claimed():
    # Four pairs that agree by luck, on a machine whose baseline scatters by five per cent.
    pairs = [Pair(100, 101 + 0.01 * index, index % 2 == 0) for index in range(4)]
    assert compare(pairs, 0.001).answer is Answer.FASTER
    assert compare(pairs, 0.05).answer is Answer.SAME
    assert noise_floor(0.05, 4) > 0.04 > noise_floor(0.05, 16)
    assert noise_floor(Missing("too-few"), 4) == noise_floor(0.0, 4)


def test_throttling_is_seen_and_the_torn_pair_left_out():
    before = [Pair(1000, 1500, True), Pair(1001, 1500, False), Pair(999, 1499, False)]
    torn = [Pair(850, 1500, False)]
    after = [Pair(850, 1275, True), Pair(851, 1276, True), Pair(850, 1275, False), Pair(849, 1274, False)]
    found = compare(before + torn + after, 0.002)
    assert found.drift.throttled_after is not None
    assert found.drift.change == pytest.approx(-0.15, abs=0.01)
    assert found.pairs == 7
    assert found.ratio == pytest.approx(1.5, rel=0.002)


def test_a_stall_is_not_throttling():
    assert throttling([0.0, 0.001, -0.001, 0.0, -0.3]) is None
    assert drift_of([0, 3, 5, 6, 8, 11], [0.0, 0.001, -0.001, 0.0005, -0.0004, 0.0002]).change == 0


def test_a_trend_is_seen():
    found = drift_of([0, 3, 5, 6, 8, 11, 13, 14], [-0.002 * place for place in (0, 3, 5, 6, 8, 11, 13, 14)])
    assert found.per_position == pytest.approx(-0.002)


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (7, 2.3646), (11, 2.2010), (30, 2.0423)]
)
def test_students_quantiles(freedom, expected):
    assert student(0.975, freedom) == pytest.approx(expected, abs=1e-4)
