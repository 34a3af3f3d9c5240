"""What costs time once, where nobody knows how long the run will be: it comes on when its lack has cost as much."""

import math

import pytest

from flatout.base.records import replace
from flatout.base.words import Words
from flatout.knobs.profile import Profile, Promise
from flatout.launch.run import Wanted
from flatout.launch.settings import Asked, Flag, decide
from flatout.measure.delivered import delivery
from flatout.measure.promise import UNIT_STEPS, Ratio, RunModel, Seconds
from flatout.report import whole_run as report
from flatout.tune.confirmation import whole_run_promise
from flatout.tune.confirmation.compare_whole_runs import Once
from flatout.tune.confirmation.late_settings import put_off
from flatout.tune.confirmation.whole_run_promise import Confirmed

BUILT_S, PLAIN_S, EXACT_S, ALL_S = 12.0, 0.020, 0.010, 0.008  # seconds of a step: plain, without and with what is compiled
KNOBS = {"workers": "4", "compile": "default"}


def seconds(value):
    return Seconds(value=value, low=value, high=value)


def model(building, step_s):
    parts = {"steps": seconds(UNIT_STEPS * step_s), "turns": seconds(0.0)}
    return RunModel(once={"start": seconds(2.0), "building": seconds(building), "exit": seconds(0.0)}, each=parts)


def found(knobs=KNOBS, epochs=None, built_s=BUILT_S):
    ratio = Ratio(value=PLAIN_S / ALL_S, low=2.0, high=3.0)
    sides = {"plain": model(0.0, PLAIN_S), "tuned": model(built_s, ALL_S)}
    return Confirmed(
        code="confirmed",
        knobs=knobs,
        epochs=epochs,
        ratio=ratio,
        put_on_step=4,
        plain_step_s=PLAIN_S,
        pairs=2,
        whole=False,
        **sides,
    )


def once(gain=EXACT_S / ALL_S):
    return {"compile": Once(build_s=BUILT_S, gain=gain)}


def test_no_length_of_the_run_is_worse_than_twice_the_best():
    (off,) = put_off(found(), once(), UNIT_STEPS).values()
    assert off.step == 4 + math.ceil(BUILT_S / (EXACT_S - ALL_S))
    for steps in (10, 100, 1000, off.step, off.step + 1, 10_000, 1_000_000):
        never, at_once = steps * EXACT_S, BUILT_S + steps * ALL_S
        ours = min(steps, off.step) * EXACT_S + max(0, steps - off.step) * ALL_S + (BUILT_S if steps > off.step else 0.0)
        assert ours <= 2 * min(never, at_once)


@pytest.mark.parametrize(
    ("what", "seen"),
    [
        (found(epochs=5.0), once()),
        (found(built_s=0.4), once()),
        (found(knobs={"workers": "4"}), once()),
        (found(), {}),
        (found(), once(gain=1.0)),
    ],
)
def test_what_comes_on_with_everything_else(what, seen):
    """The length is known, it costs little, it is not there, or it was not seen to save anything."""
    assert put_off(what, seen, UNIT_STEPS) == {}


def test_where_its_own_gain_is_not_known_all_of_it_counts():
    (off,) = put_off(found(), once(gain=None), UNIT_STEPS).values()
    assert off.saves_s == pytest.approx(PLAIN_S - ALL_S)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_it_is_said(language):
    told = whole_run_promise.told(found(), by_epoch=False)
    told = replace(told, put_off=put_off(found(), once(), UNIT_STEPS))
    assert any("6,004" in sentence and "compile" in sentence for sentence in report.sentences(told, Words(language)))


PROMISE = Promise(
    speedup=2.0, epochs=1.0, unit="steps", put_off={"compile": 1000}, put_off_saves_s=0.002,
    plain={"start": 2.0, "building": 0.5, "steps": 2.0}, tuned={"start": 2.0, "building": 12.0, "steps": 0.8},
)  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "building_s", "steps_s"), [(500, 0.5, 5 * 0.8 + 500 * 0.002), (2000, 12.0, 20 * 0.8 + 1000 * 0.002)]
)
def test_a_run_is_promised_what_its_length_gives(steps, building_s, steps_s):
    parts = {"start": 2.0, "building": building_s, "steps": steps_s}
    told = delivery(PROMISE, parts, (steps, 0), (0, ()), ())
    assert told.ratio == pytest.approx(1.0)
    assert told.parts == pytest.approx({**told.parts, **parts})


def test_a_run_is_told_of_it_unless_a_flag_asks_for_it(tmp_path):
    profile = Profile(knobs=KNOBS, promise=PROMISE)
    asked = Asked(profile="flatout.toml")
    assert Wanted(settings=decide(asked, None, profile, [])).job(tmp_path, 0.0)["put_off"] == {"compile": 1000}
    asked = Asked(profile="flatout.toml", flags=[Flag("--compile", "compile", "default")])
    assert "put_off" not in Wanted(settings=decide(asked, None, profile, [])).job(tmp_path, 0.0)
