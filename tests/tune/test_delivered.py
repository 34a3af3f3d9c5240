"""What a run under a profile delivered, part by part, for its own length; and the profile's [promise] as it is written."""

import pytest

from flatout.knobs import profile_file
from flatout.knobs.model import Came, KnobUse
from flatout.knobs.profile import Profile, Promise, Provenance
from flatout.measure.delivered import delivery

PLAIN = {"start": 2.0, "steps": 40.0, "turns": 4.0, "validation": 4.0, "exit": 1.0}
TUNED = {"start": 2.0, "building": 3.0, "steps": 8.0, "turns": 1.0, "validation": 4.0, "exit": 1.0}
PROMISE = Promise(speedup=51 / 19, epochs=4.0, batches=100, plain=PLAIN, tuned=TUNED)


def run(parts, epochs=4, code=0, notes=(), knobs=()):
    return delivery(PROMISE, parts, (100 * epochs, 100 * epochs), (code, notes), knobs)


def test_as_promised():
    told = run(TUNED)
    assert told.code == "delivered"
    assert told.ratio == pytest.approx(1.0)
    assert told.speedup == told.delivered == pytest.approx(51 / 19)
    assert told.short_of == ""


def test_a_run_of_another_length_is_compared_with_its_own_promise():
    longer = {**TUNED, "steps": 80.0, "turns": 10.0, "validation": 40.0}
    told = run(longer, epochs=40)
    assert told.ratio == pytest.approx(1.0)
    assert told.plain_s == pytest.approx(2 + 400 + 40 + 40 + 1)


def test_the_part_that_fell_short_is_named():
    told = run({**TUNED, "steps": 9.0, "turns": 6.0})
    assert (told.code, told.short_of, told.short_s) == ("short", "turns", 5.0)
    assert told.ratio == pytest.approx(19 / 25)
    assert told.delivered == pytest.approx(51 / 25)


def test_a_start_that_takes_longer_today_is_not_blamed_on_the_settings():
    told = run({**TUNED, "start": 50.0})
    assert (told.code, told.short_of) == ("delivered", "")
    assert told.ratio == pytest.approx(1.0)
    assert told.delivered == pytest.approx((51 + 48) / (19 + 48))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"code": -2}, "stopped-early"),
        ({"code": 1}, "stopped-early"),
        ({"notes": ["cut-short"]}, "stopped-early"),
        ({"epochs": 0}, "too-short"),
        ({"knobs": [KnobUse(name="tf32", value="on", source="flag", came=Came.APPLIED)]}, "other-settings"),
    ],
)
def test_what_is_not_judged(more, why):
    told = run(TUNED, **more)
    assert (told.code, told.why) == ("not-judged", why)


def test_a_setting_that_was_kept_and_does_not_come_on_is_named():
    refused = KnobUse(name="compile", value="default", source="profile", came=Came.REFUSED, code="fault")
    assert run(TUNED, knobs=[refused]).missing == ["compile"]
    ended = KnobUse(name="compile", value="default", source="profile", came=Came.REFUSED, code="ended-before")
    assert run(TUNED, knobs=[ended]).missing == []


def test_a_profile_without_a_promise_is_not_judged():
    told = delivery(Promise(), TUNED, (100, 100), (0, ()), ())
    assert (told.code, told.why) == ("not-judged", "no-promise")


def test_the_promise_is_written_and_read_again():
    profile = Profile(knobs={"workers": "4"}, provenance=Provenance(date="2026-01-01"), promise=PROMISE)
    text = profile_file.text_of(profile)
    assert "[promise]" in text
    assert "[promise.tuned]" in text
    assert profile_file.parse(text, "flatout.toml") == profile


def test_what_comes_on_later_is_written_and_read_again():
    later = Promise(speedup=2.0, epochs=1.0, plain=PLAIN, tuned=TUNED, put_off={"compile": 700}, put_off_saves_s=0.001)
    profile = Profile(knobs={"compile": "default"}, provenance=Provenance(date="2026-01-01"), promise=later)
    assert profile_file.parse(profile_file.text_of(profile), "flatout.toml") == profile


def test_an_older_profile_has_none():
    old = profile_file.parse("[knobs]\nworkers = 4\n[provenance]\nratio = 2.0\n", "flatout.toml")
    assert old.promise == Promise()
    assert "[promise" not in profile_file.text_of(old)
