"""What the first look tells is not tried; what is kept back for the end eats no search; how a restless end is told."""

import pytest
from imagined import OFFERS, Machine, offer, plan, search

from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.knobs.model import Bound, Numerics
from flatout.measure.drift import drift_of
from flatout.measure.statistics import Answer, Comparison, Pair, plainly_slower
from flatout.report.tune import sentence
from flatout.tune.search.comparison import Trial
from flatout.tune.search.questions_and_answers import Ending, Outcome, OutcomeState
from flatout.tune.search.search import _conclude, foreseen
from flatout.tune.search.search_state import Course
from flatout.tune.search.what_to_try import make

ALREADY = {"status": "already", "code": "script-set-it", "details": {}}
NONE = {"status": "refused", "code": "no-2d-convolutions", "details": {}}


def test_what_the_first_look_tells_is_decided_without_a_segment():
    ready = {"device": "cuda", "foretold": {"compile": {"default": ALREADY, "graphs": ALREADY}, "channels_last": {"on": NONE}}}
    offers = make(ready, 8.0, budget_s=90.0).offers
    wanted = plan(offers=offers, budget_s=240.0)
    end, segments, _ = search(Machine(prepare=1e-4), wanted)
    told = {(d.knob, d.value): d for d in end.decisions}
    assert told["compile", "default"].code == told["compile", "graphs"].code == "already"
    assert told["channels_last", "on"].params == {"why": "no-2d-convolutions"}
    assert not any(s.knobs.get("compile") in ("default", "graphs") or "channels_last" in s.knobs for s in segments)
    assert any(s.knobs.get("compile") == "reduce-overhead" for s in segments), "of this nothing was told"


def test_what_the_user_left_out_is_not_told_of():
    ready = {"device": "cuda", "foretold": {"compile": {"default": ALREADY}}}
    wanted = plan(offers=make(ready, 8.0).offers, skip=["compile"])
    end, _, _ = search(Machine(), wanted)
    assert {d.code for d in end.decisions if d.knob == "compile"} == {"not-chosen"}


def test_what_would_be_tried():
    ready = {"device": "cuda", "foretold": {"compile": {"default": ALREADY}, "channels_last": {"on": NONE}}}
    tried, decided = foreseen(plan(offers=make(ready, 8.0).offers, skip=["workers"]))
    values = {offer.knob: offer.values for offer in tried}
    assert values["compile"] == ["reduce-overhead", "graphs"]
    assert not {"workers", "channels_last"} & set(values)
    assert {(one.knob, one.code) for one in decided} >= {("compile", "already"), ("channels_last", "refused")}


SLOW = {"launch": 100.0, "device": 5.0, "prepare": 1e-3, "copy": 1e-4, "knows_busy": False, "start_s": 20.0, "looked": True}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("fused", [0.7, 1.0])
def test_a_slow_loop_in_a_short_time_is_judged_all_the_same(seed, fused):
    """Seen: of 30 seconds seven were used, nothing was tried, and a longer budget was asked for."""
    offers = [one for one in OFFERS if one.knob in ("fused_optimizer", "channels_last")]
    machine = Machine(**SLOW, fused_launch=fused, nhwc=1.0, bf16=1.0, seed=seed + 1)
    wanted = plan(offers=offers, budget_s=30.0, timed_s=0.5, looked_s=30.0)
    end, segments, _ = search(machine, wanted)
    assert any("fused_optimizer" in s.knobs for s in segments)
    assert end.spent_s <= 1.25 * 30.0
    if fused < 1:
        assert end.ending is Ending.TUNED
        assert isinstance(end.lower, float)
    else:
        assert end.ending is Ending.FLAT_OUT or end.spent_s > 0.8 * 30.0, "what was given is used"


def test_workers_come_first_where_a_short_search_knows_that_the_loop_waits_for_data():
    """Seen: "workers more: not tried, it needs 7 s and 6 s are left", and then settings that could show nothing."""
    offers = [one for one in OFFERS if one.knob in ("workers", "fused_optimizer", "channels_last")]
    machine = Machine(batch=32, prepare=80.0, cores=8, launch=3.0, device=1.0, knows_busy=False, start_s=5.0, looked=True)
    end, segments, _ = search(machine, plan(offers=offers, budget_s=20.0, timed_s=0.5, looked_s=5.0))
    tried = [knob for s in segments for knob in s.knobs]
    assert tried[:1] == ["workers"]
    assert "workers" in end.profile


def concluded(rates, answer, lower, upper):
    course = Course(plan())
    course.keep("channels_last", "on")
    pairs = [Pair(100.0, 100.0 * rate, True) for rate in rates]
    found = Comparison(
        answer=answer, ratio=3.0, lower=lower, upper=upper, pairs=len(pairs), noise_floor=0.02, drift=drift_of([], [])
    )
    return _conclude(course, Trial(comparison=found, pairs=pairs))


def test_what_was_faster_in_every_pair_is_kept_however_restless():
    """Seen: 1.03 to 8.5 times in six pairs, an interval that touched one, and all taken back as "not faster (+205 %)"."""
    end = concluded([1.06, 8.5, 3.0, 2.0, 4.0, 6.0], Answer.SAME, 0.98, 9.48)
    assert end.ending is Ending.TUNED
    assert (end.profile, end.lower) == ({"channels_last": "on"}, 0.98)
    for rates in ([1.03, 8.5, 3.0, 2.0, 4.0, 6.0], [8.5, 3.0, 2.0, 4.0, 6.0]):  # once inside the noise; too few
        assert concluded(rates, Answer.SAME, 0.98, 9.48).ending is Ending.NOTHING_SHOWN


def test_a_gain_that_was_not_shown_is_not_called_none():
    end = concluded([0.8, 1.5, 1.1, 1.2, 0.9, 1.3], Answer.SAME, 0.9, 1.4)
    (told,) = end.decisions
    assert (told.code, told.params["low"], told.params["high"]) == ("whole-unclear", -10.0, 40.0)
    assert "-10 to +40" in sentence(told, Words("en"))
    assert concluded([1.0] * 6, Answer.SAME, 0.99, 1.01).decisions[0].code == "whole-not-faster"


def test_too_few_pairs_are_not_called_no_gain():
    """Seen: "the whole is not faster than the plain script (+70.3 %)"."""
    none = Missing("too-few-pairs")
    (told,) = concluded([1.7, 0.9, 1.8], Answer.UNKNOWN, none, none).decisions
    assert (told.code, told.params) == ("whole-too-little", {"gain": 200.0, "pairs": 3})
    assert "too few" in sentence(told, Words("en"))


def test_two_pairs_say_nothing_where_an_arm_does_not_repeat_itself():
    """Seen: 1,343 and 434 in one arm, "far outside the noise: kept", and a profile that was slower than the plain script."""
    restless = [Pair(1343.0, 400.0, True), Pair(434.0, 130.0, False)]
    assert not plainly_slower(restless, Missing("too-few"))
    assert not plainly_slower(restless, 0.01)
    assert not plainly_slower([Pair(100.0, 93.0, True), Pair(100.0, 88.0, False)], 0.01)
    assert plainly_slower([Pair(1343.0, 400.0, True), Pair(1310.0, 410.0, False)], 0.01)


@pytest.mark.parametrize("device", [300.0, 900.0])
def test_a_budget_that_pays_no_last_comparison_is_not_broken_for_one(device):
    offers = [one for one in OFFERS if one.knob in ("tf32", "precision")]
    machine = Machine(launch=3.0, device=device, prepare=1e-3, start_s=5.0, looked=True)
    end, segments, _ = search(machine, plan(offers=offers, budget_s=30.0, timed_s=0.5, looked_s=5.0))
    assert end.spent_s <= 1.15 * 30.0
    compared = [s for s in segments if s.stage == "final" and not s.knobs]
    assert len(compared) == 0 or len(compared) >= 4
    assert isinstance(end.speedup, float) == bool(compared and end.profile)


PERSISTENT = offer("persistent_workers", ["on"], Numerics.RESAMPLED, [Bound.INPUT])


def test_epochs_longer_than_the_search_are_no_question_of_time():
    """Seen: "it needs 56921338 s and 14 s are left"."""
    machine = Machine(prepare=60, cores=16, epoch_steps=10**9)
    end, _, _ = search(machine, plan(budget_s=300.0, offers=[*OFFERS, PERSISTENT], epoch_steps=10**9))
    (told,) = (d for d in end.decisions if d.knob == "persistent_workers")
    assert told.code == "long-epochs"


def test_why_workers_cannot_be_had_is_said_with_what_it_is_about():
    """Seen: a KeyError in the middle of a search, for every IterableDataset."""
    why = Outcome(state=OutcomeState.REFUSED, code="iterable-dataset", details={"dataset": "Stream"})
    machine = Machine(prepare=60, refuses={"workers": why})
    end, _, _ = search(machine, plan(budget_s=120.0))
    told = [sentence(d, Words("en")) for d in end.decisions if d.knob == "workers" and d.code == "refused"]
    assert told
    assert all("Stream is an IterableDataset" in one for one in told)


def test_a_figure_that_is_missing_ends_nothing():
    """What is known is said instead; the key would tell nobody anything."""
    said = Words("en")("outcome.iterable-dataset", other=1)
    assert "other 1" in said
    assert "outcome" not in said
