"""What is said of whole runs, promised by tune and delivered by run, in both languages."""

import sys
from collections import namedtuple

import pytest

from flatout.base.records import Missing, replace
from flatout.base.words import Words
from flatout.cli.whole_runs import unconfirmed
from flatout.knobs.model import Came, KnobUse
from flatout.knobs.profile import Promise
from flatout.machine import facts
from flatout.machine.machine_facts import Interpreter
from flatout.measure.delivered import delivery
from flatout.measure.model import Summary, TorchBuild
from flatout.measure.promise import Building, Measured, without_more
from flatout.report import run_promise
from flatout.report import tune as tune_report
from flatout.report import whole_run as report
from flatout.tune.confirmation import whole_run_promise
from flatout.tune.confirmation.whole_run_promise import Arms
from flatout.tune.search.run_length import RunLength

PLAIN = {"start": 4.0, "steps": 180.0, "turns": 4.0, "validation": 20.0, "exit": 0.5}
TUNED = {"start": 4.0, "building": 2.0, "steps": 18.0, "turns": 0.5, "validation": 8.0, "exit": 0.5}
TEN = RunLength(steps=1000, epochs=10.0, source="own-argument")


@pytest.fixture(params=["en", "zh"])
def words(request):
    return Words(request.param)


def promised(plain=PLAIN, tuned=TUNED, length=TEN, runs=2, whole=True, left_out=None, workers=()):
    arms = Arms(
        plain=[Measured(parts=without_more(plain), epochs=10.0, whole=whole, turns=1)] * runs,
        tuned=[Measured(parts=without_more(tuned), epochs=10.0, whole=whole, turns=1, workers=dict(workers))] * runs,
    )
    return whole_run_promise.told(whole_run_promise.judged(arms, {"workers": "4"}, length, None, left_out), by_epoch=True)


def test_the_headline_names_the_run_and_what_is_left():
    (said, repaid) = report.sentences(promised(), Words("en"))
    assert said.startswith("Your 10 epochs: 3 min 28 s → 33.0 s, 6.3 times as fast (uncertainty: ")
    assert " The training loop alone: 10.0 times as fast. " in said
    assert "validation 8.00 s" in said
    assert "start-up 4.00 s" in said
    assert repaid == "The tuned run is faster if it has at least 0.10 epochs."


def test_a_loader_without_an_end_has_no_epochs():
    endless = RunLength(steps=1500, epochs=1500 / 1e10, source="own-argument")
    assert tune_report.run_length(endless, Words("en")).startswith("Your run: 1,500 steps (from the script's own argument)")
    (said, *_) = report.sentences(promised(length=replace(endless, source="asked")), Words("en"))
    assert said.startswith("Your 1,500 steps: ")
    half = RunLength(steps=50, epochs=0.5, source="own-argument")
    assert tune_report.run_length(half, Words("en")).startswith("Your run: 0.50 epochs, 50 steps")


@pytest.mark.parametrize("budget", ["", "5m"])
def test_what_is_not_clear_is_said_so(budget, words):
    """It is not "not faster": another search may show it."""
    found = replace(promised(tuned={**PLAIN, "steps": 178.0}), budget=budget)
    assert found.code == "unclear"
    said = report.sentences(found, words)
    assert words("whole-run.unclear") in said
    assert any("--budget 5m" in sentence for sentence in said) is bool(budget)
    assert words("whole-run.not-faster") not in said
    slower = promised(tuned={**PLAIN, "steps": 280.0})
    assert slower.code == "not-faster"
    assert report.sentences(slower, words)[-1] == words("whole-run.not-faster")


def test_what_comes_after_the_last_epoch_is_said_to_be_missing(words):
    missing = words("whole-run.no-ending")
    assert missing in report.sentences(promised(whole=False), words)
    assert missing not in report.sentences(promised(), words)


def test_what_did_not_come_on_is_said(words):
    said = report.sentences(replace(promised(), not_on={"compile": "taken-back", "tf32": "x"}), words)
    assert any("compile" in sentence and "tf32" in sentence for sentence in said)


def test_what_became_of_the_workers_is_said():
    seen = {"turns_kept": 4, "turns_fresh": 0, "evaluation_loaders": 2, "evaluation_workers": 1}
    (_, _, said) = report.sentences(promised(workers=seen), Words("en"))
    assert said == (
        "Workers in the last tuned run: the workers stayed alive over all 4 epoch boundaries; up to 1 more worker(s) "
        "for each of 2 validation DataLoaders."
    )


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"workers": {"turns_kept": 3, "turns_fresh": 1, "fresh_because": "grown", "fresh_what": "1 → 9 MiB"}},
        {"runs": 1, "whole": False},
        {"length": None, "whole": False},
        {"length": RunLength(epochs=1.0, source="seen")},
        {"tuned": {**TUNED, "building": 200.0}},
        {"left_out": {"compile": "default"}},
        {"left_out": {"workers": "4", "cudnn_benchmark": "on"}},
    ],
)
def test_everything_is_said_in_both_languages(more, words):
    for sentence in report.sentences(promised(**more), words):
        assert sentence
        assert "?" not in sentence
        assert "{" not in sentence


@pytest.mark.parametrize("code", ["no-time", "plain-fails", "tuned-fails"])
def test_what_could_not_be_confirmed_is_said(code, words):
    why = "" if code == "no-time" else "failed"
    found = whole_run_promise.told(whole_run_promise.Confirmed(code=code, knobs={}, why=why, detail="7"), by_epoch=True)
    (sentence,) = report.sentences(replace(found, budget="3m"), words)
    assert ("7" in sentence) is bool(why)
    assert ("--budget 3m" in sentence) is (code == "no-time")


COUNTED_WARM = (
    "take 3.00 s in these figures, because these runs have already filled the compiler's cache. "
    "The first run after that cache is cleared needs"
)


@pytest.mark.parametrize(
    ("building", "said"),
    [
        (Building(seconds=3.0, warm=True, cold_s=20.0), COUNTED_WARM + " 20.0 s for this."),
        (
            Building(seconds=3.0, warm=False, cold_s=20.0),
            COUNTED_WARM + " 20.0 s for this.",
        ),
        (Building(seconds=3.0, warm=True), COUNTED_WARM + " longer for this."),
        (Building(seconds=3.0, warm=False), "Compiling was measured in one run only: 3.00 s."),
    ],
)
def test_which_price_of_building_is_counted_is_said(building, said, words):
    found = replace(promised(), building=building)
    assert sum(said in sentence for sentence in report.sentences(found, Words("en"))) == 1
    assert not any("{" in sentence for sentence in report.sentences(found, words))


def ended(unpaid):
    return namedtuple("Ended", "unpaid")(unpaid)


@pytest.mark.parametrize("code", ["no-time", "plain-fails"])
def test_what_whole_runs_were_to_decide_is_left_out_where_they_told_nothing(code, words):
    found = whole_run_promise.Confirmed(code=code, knobs={"workers": "4", "compile": "default"})
    left = unconfirmed(ended(["compile"]), found)
    assert (left.knobs, left.unconfirmed) == ({"workers": "4"}, {"compile": "default"})
    assert "compile=default" in report.sentences(whole_run_promise.told(left, by_epoch=True), words)[-1]
    assert "compile=default" not in " ".join(report.sentences(whole_run_promise.told(found, by_epoch=True), words))
    assert unconfirmed(ended([]), found) == found
    confirmed = replace(found, code="confirmed")
    assert unconfirmed(ended(["compile"]), confirmed) == confirmed


def summary_of(parts, told):
    none = Missing("no-steps")
    return Summary(
        run_id="x", command=["python", "t.py"], started=0.0, wall_s=sum(parts.values()), exit_code=0, signal=None, steps=1000,
        samples=none, samples_per_s=none, step_s=none, warmup_steps=0, phases={}, processes=1,
        torch=TorchBuild(version="2.9"), machine=facts.machine(Interpreter(path=sys.executable)), notes=[], parts=parts,
        promise=told,
    )  # fmt: skip


def said_of(parts, words, code=0, knobs=()):
    told = delivery(Promise(epochs=10.0, batches=100, plain=PLAIN, tuned=TUNED), parts, (1000, 1000), (code, ()), knobs)
    return [line.plain for line in run_promise.lines(summary_of(parts, told), words)]


def test_a_run_says_what_it_delivered_and_which_part_fell_short():
    words = Words("en")
    kept, parts = said_of(TUNED, words)
    assert kept.startswith("This run took 33.0 s (the profile promised 33.0 s). It was 6.3 times as fast as the plain script")
    assert "steps 18.0 s → 18.0 s" in parts
    short, _ = said_of({**TUNED, "turns": 40.0}, words)
    assert short.endswith("Main reason: epoch boundaries took 39.5 s longer than promised.")


def test_a_run_that_is_not_judged_says_why(words):
    (sentence,) = said_of(TUNED, words, code=1)
    assert sentence
    refused = KnobUse(name="compile", value="default", source="profile", came=Came.REFUSED, code="fault")
    assert "compile" in said_of(TUNED, words, knobs=[refused])[-1]
