"""The race to the same loss over imagined curves."""

import json
import math
import random

import pytest

from flatout.measure.time_to_loss import Learned, LossCurve, curve_of, judge
from flatout.tune.execution.search_journal import TuneLine, line_of
from flatout.tune.search.questions_and_answers import SegmentResult, Status


def curve(seed, step_s, speed, seconds=10.0, noise=0.02, start=2.0):
    """A loss that falls exponentially; `speed` is what a second is worth."""
    draw = random.Random(seed)
    times = [step_s * (number + 1) for number in range(int(seconds / step_s))]
    return LossCurve(seconds=times, losses=[start * math.exp(-speed * t) + 0.5 + draw.gauss(0, noise) for t in times])


def pairs(changed_speed, noise=0.02, first=0):
    changed = [curve(first + seed + 50, 0.2, changed_speed, noise=noise / 2) for seed in range(3)]
    return list(zip([curve(first + seed, 0.05, 0.2, noise=noise) for seed in range(3)], changed, strict=True))


def test_twice_as_fast_is_about_two_and_says_so():
    found = judge(pairs(0.4))
    assert found.verdict is Learned.FASTER
    assert 1.6 < found.ratio < 2.4
    assert found.lower > 1
    assert found.changed_s < found.plain_s


def test_more_samples_that_teach_less_are_slower():
    found = judge(pairs(0.1))
    assert (found.verdict, found.code, found.not_reached) == (Learned.SLOWER, "never-there", 3)


def test_a_training_that_is_over_before_it_comes_there():
    """As many epochs of a larger batch are fewer steps; that they took less time makes it no faster."""
    short = [(plain, curve(seed + 50, 0.2, 0.25, seconds=4.0, noise=0.01)) for seed, (plain, _) in enumerate(pairs(0.4))]
    found = judge(short)
    assert (found.verdict, found.code, found.not_reached) == (Learned.SLOWER, "fewer-steps", 3)
    assert found.ratio <= 1.05


def test_a_curve_ends_where_it_is_no_number_and_can_be_written():
    broken = curve_of([0.1, 0.2, 0.3], [1.0, math.inf, 2.0])
    assert (broken.seconds, broken.losses, broken.broke) == ([0.1], [1.0], True)
    assert not curve_of([0.1], [1.0]).broke
    result = SegmentResult(id=1, status=Status.OK, took_s=1.0, curve=broken)
    assert json.loads(line_of(TuneLine(result=result)))["result"]["curve"]["broke"] is True
    plain = pairs(0.4)
    assert judge([(one, broken) for one, _ in plain]).code == "not-finite"
    assert judge([(broken, one) for one, _ in plain]).code == "plain-not-finite"


def test_a_loss_that_only_wanders_is_nothing_learned():
    drifting = [(curve(seed, 0.05, 0.0005, noise=0.001), curve(seed + 9, 0.2, 0.0005, noise=0.001)) for seed in range(3)]
    assert judge(drifting).code == "nothing-learned"


def test_a_training_that_breaks_is_slower():
    broken = [(plain, LossCurve(seconds=c.seconds, losses=[*c.losses[:-1], math.nan])) for plain, c in pairs(0.4)]
    assert (judge(broken).verdict, judge(broken).code) == (Learned.SLOWER, "not-finite")


def test_a_loss_that_has_long_been_level_is_no_lottery():
    """When the last of it is reached, noise alone says; both fall equally fast here, and are level for most of the time."""
    ratios = []
    for number in range(12):
        plain = [curve(10 * number + seed, 0.03, 4.0, noise=0.04, start=3.0) for seed in range(3)]
        changed = [curve(1000 + 10 * number + seed, 0.06, 4.0, noise=0.02, start=3.0) for seed in range(3)]
        ratios.append(judge(list(zip(plain, changed, strict=True))).ratio)
    assert max(ratios) < 1.25
    assert min(ratios) > 0.8


def test_what_is_probably_later_is_told_from_what_cannot_be_told():
    codes = {speed: [judge(pairs(speed, 0.05, 100 * number)).code for number in range(20)] for speed in (0.185, 0.2)}
    assert set(codes[0.185]) <= {"rather-later", "later-there"}
    assert "rather-later" in codes[0.185]
    assert codes[0.2].count("too-noisy") >= 18


def plateau(seed, step_s, early, rate, level, noise):
    """Most is learned in the first moments; then it is level, and touches what it touches by noise."""
    draw = random.Random(seed)
    times = [step_s * (number + 1) for number in range(int(6.0 / step_s))]
    return LossCurve(seconds=times, losses=[level + early * math.exp(-rate * t) + draw.gauss(0, noise) for t in times])


@pytest.mark.parametrize(
    ("level", "rates", "code", "other"),
    [
        (4.50, (0.5, 0.8, 3.0), "as-low-by-then", {"rather-later", "later-there"}),
        (4.56, (0.6, 1.0, 4.0), "rather-later", {"as-low-by-then", "too-noisy"}),
    ],
)
def test_what_is_as_low_after_the_same_time_is_not_called_later(level, rates, code, other):
    """Seen with a GPT on a card: its small noisy batches touched the goal first, and the larger ones were lower at the end."""
    codes = []
    for number in range(30):
        plain = [plateau(10 * number + seed, 0.02, 1.7, 6.0, 4.52, 0.08) for seed in range(3)]
        changed = [plateau(1000 + 10 * number + seed, 0.05, 0.2, rates[seed], level, 0.04) for seed in range(3)]
        codes.append(judge(list(zip(plain, changed, strict=True))).code)
    assert not other & set(codes), codes
    assert codes.count(code) >= 5, codes


def test_where_the_plain_training_learns_nothing_nothing_is_said():
    flat = [(curve(seed, 0.05, 0.0), curve(seed + 9, 0.2, 0.0)) for seed in range(3)]
    assert (judge(flat).verdict, judge(flat).code) == (Learned.UNKNOWN, "nothing-learned")


def test_the_same_speed_is_no_gain():
    found = [judge(pairs(0.2, noise, 100 * number)).verdict for number in range(10) for noise in (0.01, 0.1)]
    assert found.count(Learned.UNKNOWN) >= 18


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_pairs(count):
    assert judge(pairs(0.4)[:count]).verdict is Learned.UNKNOWN
