"""The leak slope: rises that go on are found, those that end are not."""

import random

import pytest

from flatout.measure.growth import grown
from flatout.measure.trend import theil_sen

MIB = 1 << 20


def series(used, points=64, every=10):
    return [(index * every, int(used(index))) for index in range(points)]


def test_a_slope_is_found_in_noise_and_past_an_odd_point():
    draw = random.Random(0)
    points = [(float(x), 2.0 * x + draw.gauss(0, 5)) for x in range(60)]
    points[30] = (30.0, 1e9)
    trend = theil_sen(points)
    assert trend is not None
    assert trend.slope == pytest.approx(2.0, rel=0.05)
    assert trend.low < 2.0 < trend.high
    assert trend.significance > 8
    falling = theil_sen([(x, -y) for x, y in points])
    assert falling is not None
    assert falling.significance < -8


def test_noise_and_standstill_have_no_trend():
    hits = 0
    for seed in range(40):
        draw = random.Random(seed)
        trend = theil_sen([(float(x), draw.gauss(0, 1)) for x in range(48)])
        assert trend is not None
        hits += abs(trend.significance) >= 3
    assert hits == 0
    flat = theil_sen([(float(x), 7.0) for x in range(48)])
    assert flat is not None
    assert (flat.slope, flat.significance) == (0.0, 0.0)


def test_too_few_points():
    assert theil_sen([(0.0, 1.0), (1.0, 2.0)]) is None
    assert theil_sen([(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]) is None
    assert grown([]) is None
    assert grown(series(lambda index: index, points=8)) is None


def test_a_leak():
    growth = grown(series(lambda index: 500 * MIB + index * 10 * MIB))
    assert growth is not None
    assert growth.bytes_per_step == pytest.approx(MIB)
    assert growth.low_bytes_per_step > 0
    assert growth.significance > 5
    assert growth.late_bytes > 100 * MIB


def test_what_comes_with_the_first_steps_is_no_leak():
    growth = grown(series(lambda index: 500 * MIB if index < 5 else 2000 * MIB))
    assert growth is not None
    assert (growth.bytes_per_step, growth.grown_bytes) == (0.0, 0)


def test_a_rise_that_ends_does_not_go_on():
    growth = grown(series(lambda index: min(index, 30) * 10 * MIB))
    assert growth is not None
    assert growth.late_bytes == 0
