"""The parity gate: the same passes, a planted bad profile fails, too little is unknown."""

import random
from types import SimpleNamespace

import pytest
from imagined import Machine, plan, search

from flatout.base.records import replace
from flatout.base.words import Words
from flatout.cli import parity_gate
from flatout.measure.one_batch import Training
from flatout.measure.parity import Verdict, judge
from flatout.tune.confirmation.parity_runs import Gate


def curve(seed, steps=60, floor=1.0, noise=0.02, worse=0.0):
    chance = random.Random(seed)
    return [floor + worse * (step / steps) + 2.0 * 0.93**step + chance.gauss(0, noise) for step in range(steps)]


def pairs(**changed):
    return [(curve(seed), curve(seed + 100, **changed)) for seed in range(3)]


def test_the_same_passes():
    assert judge(pairs()).verdict is Verdict.PASS
    assert judge([(curve(seed), curve(seed)) for seed in range(3)]).verdict is Verdict.PASS


@pytest.mark.parametrize("worse", [0.3, 1.0])
def test_what_learns_worse_fails(worse):
    found = judge(pairs(worse=worse))
    assert found.verdict is Verdict.FAIL
    assert found.difference > found.margin


def test_nothing_learned_fails():
    stuck = [(curve(seed), [3.0] * 60) for seed in range(3)]
    assert judge(stuck).verdict is Verdict.FAIL


def test_numbers_that_are_none():
    broken = [(curve(seed), [*curve(seed)[:30], *[float("nan")] * 30]) for seed in range(3)]
    assert (judge(broken).verdict, judge(broken).code) == (Verdict.FAIL, "not-finite")
    plain = [([float("inf")] * 60, curve(seed)) for seed in range(3)]
    assert judge(plain).verdict is Verdict.UNKNOWN


def test_too_little_is_unknown():
    assert judge([]).verdict is Verdict.UNKNOWN
    assert judge(pairs()[:2]).verdict is Verdict.UNKNOWN
    assert judge([(curve(seed, steps=10), curve(seed, steps=10)) for seed in range(3)]).verdict is Verdict.UNKNOWN


def test_a_better_curve_is_no_harm():
    assert judge(pairs(worse=-0.5)).verdict is Verdict.PASS


def trained(bad):
    def train(knobs, steps, seed, draws):
        assert not draws, "no gradients were told, so nothing has to be compared with chance"
        return Training(losses=curve(seed + len(knobs), steps, worse=1.0 if bad & set(knobs) else 0.0))

    return train


def test_a_failing_profile_is_repaired_by_its_guilty_knob():
    told = []
    knobs, parity, taken = Gate(trained({"precision"}), told.append).repaired(
        {"precision": "bf16", "tf32": "on", "workers": "4"}
    )
    assert (knobs, taken) == ({"tf32": "on", "workers": "4"}, ["precision"])
    assert parity.verdict is Verdict.PASS
    assert told


def test_one_that_cannot_be_repaired_is_refused():
    bad = {"precision", "compile", "tf32", "channels_last"}
    _, parity, taken = Gate(trained(bad), lambda _: None).repaired(dict.fromkeys(bad, "on"))
    assert parity.verdict is Verdict.FAIL
    assert taken == ["precision", "compile"]


def test_what_changes_no_numbers_needs_no_training():
    def never(*_):
        raise AssertionError("trained for nothing")

    knobs, parity, _ = Gate(never, lambda _: None).repaired({"workers": "4", "pin_memory": "on"})
    assert (knobs, parity.verdict) == ({"workers": "4", "pin_memory": "on"}, Verdict.PASS)


def test_a_child_that_dies_leaves_it_unknown():
    _, parity, _ = Gate(lambda *_: None, lambda _: None).repaired({"precision": "bf16"})
    assert parity.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("profile", [{"workers": "2"}, {"workers": "2", "batch_size": "64"}])
def test_that_parity_says_nothing_of_the_batch_is_said(profile, tmp_path):
    """ "Passed, there is nothing to compare" under a batch eight times as large reads as a blessing."""

    class Heard:
        words = Words("en")

        def __init__(self):
            self.said = []

        say = hint = lambda self, sentence: self.said.append(sentence)

    machine = Machine()
    end, _, _ = search(machine, plan(budget_s=60.0))
    heard, trials = Heard(), SimpleNamespace(ready={}, curve=None)
    found = parity_gate.passed(replace(end, profile=profile), trials, tmp_path, heard)
    assert found.profile == profile
    assert any("used batch size 64" in one for one in heard.said) == ("batch_size" in profile)
