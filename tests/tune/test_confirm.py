"""The decisions of a confirmation: how many runs, what is promised, what is left out, and when nothing is written."""

import math
import random
from collections import Counter

import pytest

from flatout.base.records import Missing
from flatout.measure import promise
from flatout.measure.promise import Measured, Ratio
from flatout.tune.confirmation import whole_run_promise
from flatout.tune.confirmation.compare_whole_runs import Confirmation, Known
from flatout.tune.search.run_length import RunLength
from flatout.tune.search.time_budget import Costs

COSTS = Costs(looked_s=2.0, start_s=2.0)
FIVE_EPOCHS = RunLength(steps=500, epochs=5.0, source="own-argument")


class Machine:
    """Runs a script of five epochs: `parts` says what each part of a whole run takes under given knobs."""

    def __init__(self, parts, epochs=5.0, longest_s=float("inf"), noise=(), refused=(), takes_back=(), reads=()):
        self.parts, self.epochs, self.longest_s = parts, epochs, longest_s
        self.noise, self.reads = list(noise), list(reads)
        self.refused, self.takes_back = dict(refused), list(takes_back)  # of each tuned run
        self.clock = 0.0
        self.ran = []

    def now(self):
        return self.clock

    def run(self, knobs, plain, until, longest_s):
        assert bool(plain) is bool(knobs)
        self.ran.append(dict(knobs))
        told = self.parts(knobs)
        if isinstance(told, Missing):
            self.clock += 5.0
            return told
        factor = self.noise.pop(0) if self.noise else 1.0
        read = {"read_bytes": self.reads.pop(0) if self.reads else 0}
        parts = {name: value * factor for name, value in promise.without_more(told).items()}
        whole = sum(parts.values())
        if whole - parts["start"] <= until["cut_s"]:
            self.clock += whole
            back = self.takes_back.pop(0) if knobs and self.takes_back else []
            more = {"refused": {name: code for name, code in self.refused.items() if name in knobs}, "taken_back": back, **read}
            return Measured(parts=parts, epochs=self.epochs, step_s=parts["steps"] / 500, put_on_step=4, **more)
        self.clock += until["cut_s"] + parts["start"]
        each = {name: parts[name] / self.epochs for name in promise.EACH}
        return Measured(parts={**parts, **each}, epochs=1.0, step_s=parts["steps"] / 500, whole=False, put_on_step=4, **read)

    def confirm(self, knobs, room_s=100.0, length=FIVE_EPOCHS, loop=None, plain_s=None, costs=COSTS, **more):
        confirmation = Confirmation(self.run, self.now, known=Known(**more))
        return confirmation.confirm(knobs, room_s, costs, length, loop, plain_s)


def faster(knobs):
    loop = 10.0
    building = 0.0
    if "workers" in knobs:
        loop /= 5
    if "compile" in knobs:
        loop, building = loop / 1.2, 20.0
    return {"start": 2.0, "building": building, "steps": loop, "validation": 1.0, "exit": 0.5}


def test_whole_runs_are_taken_in_turn_and_give_the_promise():
    machine = Machine(faster)
    found = machine.confirm({"workers": "4"}, plain_s=14.0)
    assert machine.ran == [{}, {"workers": "4"}, {"workers": "4"}, {}]
    assert (found.code, found.whole, found.pairs, found.knobs) == ("confirmed", True, 2, {"workers": "4"})
    assert found.ratio.value == pytest.approx(13.5 / 5.5)
    assert found.ratio.low > 1
    told = whole_run_promise.told(found, by_epoch=True)
    assert (told.plain_s, told.tuned_s) == (13.5, 5.5)
    assert sum(told.parts["tuned"].values()) == pytest.approx(5.5)
    assert told.loop == pytest.approx(5.0)
    assert told.put_on_step == 4


def test_what_one_run_does_not_repay_is_left_out():
    """The loop gains by compiling, and this run is too short for it."""
    machine = Machine(faster)
    found = machine.confirm({"workers": "4", "compile": "default"}, plain_s=14.0)
    assert (found.code, found.knobs, found.left_out) == ("confirmed", {"workers": "4"}, {"compile": "default"})
    assert found.ratio.value == pytest.approx(13.5 / 5.5)


def hurting(*bad):
    """TF32 gives a quarter; what is named costs where it does: workers at the epoch's turn, a layout in the validation."""

    def parts(knobs):
        steps = 10.0 * (0.75 if "tf32" in knobs else 1.0) * (0.95 if "workers" in knobs else 1.0)
        turns = 6.0 if "workers" in bad and "workers" in knobs else 0.0
        validation = 6.0 if "channels_last" in bad and "channels_last" in knobs else 1.0
        return {"start": 2.0, "steps": steps, "turns": turns, "validation": validation}

    return parts


LOADER = {"workers": "4", "pin_memory": "on"}


@pytest.mark.parametrize(("bad", "gone"), [("workers", LOADER), ("channels_last", {"channels_last": "on"})])
def test_one_setting_that_hurts_does_not_take_the_others(bad, gone):
    """Seen: workers that cost more at the epoch's turn than they gave in the loop ended a search without a profile."""
    knobs = {**LOADER, "channels_last": "on", "tf32": "on"}
    gains = {"tf32": 1.25, "channels_last": 1.03, "workers": 1.05}
    found = Machine(hurting(bad)).confirm(knobs, room_s=110.0, plain_s=13.0, gains=gains)
    assert (found.code, found.left_out) == ("confirmed", gone)
    assert found.knobs == {name: value for name, value in knobs.items() if name not in gone}


def test_what_did_not_come_on_without_another_is_not_called_slower():
    machine = Machine(hurting("workers"))
    run = machine.run

    def refusing(knobs, *rest):
        machine.refused = {} if "workers" in knobs else {"channels_last": "needs-workers"}
        return run(knobs, *rest)

    machine.run = refusing
    found = machine.confirm({**LOADER, "channels_last": "on", "tf32": "on"}, room_s=110.0, plain_s=13.0)
    assert (found.left_out, found.not_on, found.knobs) == (LOADER, {"channels_last": "needs-workers"}, {"tf32": "on"})


def test_what_is_no_faster_left_out_comes_back():
    """Both cost a little; the loader's are asked first, and are not what it is."""
    found = Machine(hurting("channels_last")).confirm(
        {**LOADER, "channels_last": "on", "tf32": "on"}, room_s=200.0, plain_s=13.0, gains={"tf32": 1.25, "workers": 1.01}
    )
    assert (found.code, found.left_out) == ("confirmed", {"channels_last": "on"})


def test_the_time_to_leave_something_out_is_kept():
    """In a room for two pairs the second one is not run where the first looks slower."""
    machine = Machine(hurting("workers"), noise=[1.0, 0.85])
    found = machine.confirm({**LOADER, "tf32": "on"}, room_s=56.0, plain_s=13.0)
    assert (found.code, found.left_out) == ("confirmed", LOADER)


def test_what_looks_faster_is_not_taken_apart():
    """Whatever gave least gave something; without a part that grew there is nothing to suspect."""
    noise = [1.0, 0.99, 1.0, 1.03, 0.98, 1.02, 1.0, 1.0]
    machine = Machine(lambda knobs: {"steps": 9.95 if knobs else 10.0}, noise=noise)
    found = machine.confirm({"channels_last": "on", "tf32": "on"}, room_s=400.0, plain_s=10.0)
    assert (found.code, found.left_out) == ("unclear", {})
    assert len(machine.ran) == 8


def test_a_longer_run_repays_it():
    machine = Machine(faster)
    length = RunLength(steps=50000, epochs=500.0, source="asked")
    found = machine.confirm({"workers": "4", "compile": "default"}, room_s=150.0, length=length)
    assert (found.code, found.left_out) == ("confirmed", {})
    assert found.ratio.value > 3.4
    assert whole_run_promise.told(found, by_epoch=True).repaid_after > 0


def test_what_makes_a_whole_run_slower_is_not_confirmed():
    machine = Machine(lambda knobs: {"start": 2.0, "building": 9.0 if knobs else 0.0, "steps": 8.0 if knobs else 10.0})
    found = machine.confirm({"compile": "default"}, plain_s=12.0)
    assert found.code == "not-faster"


@pytest.mark.parametrize("kept", [[0.5, 0.5, 0.5], [2.0, 2.0, 2.0], [0.5, 1.0, 2.0]])
def test_what_earlier_promises_were_missed_by_refuses_no_profile(kept):
    """Seen: three runs that fell short, or were faster than promised, and a gain of two times ended without a profile."""
    plain, found = (Machine(faster).confirm({"workers": "4"}, plain_s=14.0, kept=one) for one in ([], kept))
    assert (found.code, found.knobs) == ("confirmed", {"workers": "4"})
    assert found.ratio.value == plain.ratio.value
    assert (found.ratio.low < plain.ratio.low) is (min(kept) < 1)
    assert (found.ratio.high > plain.ratio.high) is (max(kept) > 1)


def test_noise_that_hides_the_gain_is_not_confirmed():
    machine = Machine(
        lambda knobs: {"start": 2.0, "steps": 9.7 if knobs else 10.0}, noise=[1.0, 1.1, 0.9, 1.2, 1.0, 0.95, 1.1, 1.0]
    )
    found = machine.confirm({"workers": "4"}, plain_s=12.0)
    assert (found.code, found.pairs) == ("unclear", 3)  # as many as there was time for


class Restless(Machine):
    """Each run takes longer or shorter by chance; `gain`: of the whole run."""

    def __init__(self, gain, spread, seed):
        draw = random.Random(seed)
        super().__init__(lambda knobs: {"steps": 10.0 / (gain if knobs else 1.0) * math.exp(draw.gauss(0, spread))})


def codes(gain, spread, runs=200):
    return Counter(Restless(gain, spread, seed).confirm({"tf32": "on"}, 100.0, plain_s=10.0).code for seed in range(runs))


@pytest.mark.parametrize(("gain", "spread"), [(1.04, 0.005), (1.06, 0.01), (1.1, 0.02), (1.2, 0.04)])
def test_a_gain_that_is_larger_than_the_scatter_is_confirmed(gain, spread):
    assert codes(gain, spread)["confirmed"] >= 180


@pytest.mark.parametrize("spread", [0.002, 0.01, 0.02, 0.04])
def test_what_gains_nothing_is_not_confirmed_and_not_called_slower(spread):
    """Seen: whatever gained less than 7 % was told not to be faster, however quiet the machine."""
    found = codes(1.0, spread)
    assert found["unclear"] >= 160
    assert found["confirmed"] <= 20


def test_what_is_slower_is_said_to_be():
    found = codes(0.9, 0.01)
    assert found["not-faster"] >= 190


def test_one_noisy_pair_does_not_end_it_where_nothing_can_be_left_out():
    machine = Machine(lambda knobs: {"steps": 7.0 if knobs else 10.0}, noise=[1.0, 1.7])
    assert machine.confirm({"tf32": "on"}, 200.0, plain_s=10.0).pairs > 1


def test_of_an_unknown_length_whole_runs_tell_it():
    found = Machine(faster).confirm({"workers": "4"}, length=None)
    assert found.epochs == 5.0
    assert found.length.source == "seen"


def test_a_run_to_its_end_refutes_what_its_argument_seems_to_say():
    """One that trains for each of four folds."""
    found = Machine(faster, epochs=20.0).confirm({"workers": "4"}, plain_s=14.0)
    assert (found.epochs, found.length.source) == (20.0, "seen")
    asked = RunLength(steps=500, epochs=5.0, source="asked")
    assert Machine(faster, epochs=20.0).confirm({"workers": "4"}, plain_s=14.0, length=asked).epochs == 5.0


def test_a_tuned_run_to_its_end_refutes_it_too():
    """The plain one was ended early."""
    parts = promise.without_more({"start": 1.0, "steps": 4.0})
    arms = whole_run_promise.Arms(
        plain=[Measured(parts=parts, epochs=1.0, whole=False)],
        tuned=[Measured(parts=promise.without_more({"start": 1.0, "steps": 40.0}), epochs=20.0)],
    )
    found = whole_run_promise.judged(arms, {}, FIVE_EPOCHS, None)
    assert (found.epochs, found.length.source) == (20.0, "seen")
    assert found.ratio.value == pytest.approx(81 / 41)


def test_an_unknown_length_that_does_not_fit_is_promised_by_epoch():
    found = Machine(lambda knobs: {"start": 2.0, "steps": 100.0 if knobs else 400.0}).confirm({"workers": "4"}, length=None)
    told = whole_run_promise.told(found, by_epoch=True)
    assert (found.code, found.whole, found.epochs) == ("confirmed", False, None)
    assert isinstance(told.plain_s, Missing)
    assert told.speedup == pytest.approx(4.0)
    assert told.each == pytest.approx({"plain": 80.0, "tuned": 20.0})


def test_of_whole_runs_and_the_loop_the_lower_is_promised():
    loop = Ratio(value=2.0, low=1.9, high=2.1)
    found = Machine(faster).confirm({"workers": "4"}, loop=loop, plain_s=14.0)
    assert found.ratio.value == pytest.approx(13.5 / (2.0 + 10.0 / 2 + 1.0 + 0.5))
    higher = Machine(faster).confirm({"workers": "4"}, loop=Ratio(value=9.0, low=8.5, high=9.5), plain_s=14.0)
    assert higher.ratio.value == pytest.approx(13.5 / 5.5)


def test_a_tuned_run_that_dies_writes_nothing():
    machine = Machine(lambda knobs: Missing("failed", "1") if knobs else faster(knobs))
    found = machine.confirm({"workers": "4"})
    assert (found.code, found.why, found.detail) == ("tuned-fails", "failed", "1")


def test_a_plain_run_that_dies_tells_nothing_of_the_settings():
    found = Machine(lambda knobs: Missing("failed", "1")).confirm({"workers": "4"})
    assert (found.code, found.knobs) == ("plain-fails", {"workers": "4"})


class Counts(Machine):
    """It draws as many batches as its epoch has, and dies where this ends early."""

    def run(self, knobs, plain, until, longest_s):
        if until["cut_s"] < until["stop_s"]:
            self.ran.append(dict(knobs))
            self.clock += until["cut_s"] + 2.0
            return Missing("failed", "1")
        return super().run(knobs, plain, until, longest_s)


def test_a_script_that_counts_its_batches_is_confirmed_without_a_cut():
    """Seen: the plain script died of an epoch that was cut short, and never got a promise."""
    machine = Counts(lambda knobs: {"start": 2.0, "steps": 100.0 if knobs else 400.0})
    found = machine.confirm({"workers": "4"}, length=None)
    assert (found.code, found.whole) == ("confirmed", False)
    assert machine.ran[:3] == [{}, {}, {"workers": "4"}]


def test_a_script_that_dies_before_the_cut_is_not_run_again():
    class Dies(Machine):
        def run(self, knobs, plain, until, longest_s):
            self.ran.append(dict(knobs))
            self.clock += 0.5 * until["cut_s"]
            return Missing("failed", "1")

    machine = Dies(faster)
    assert machine.confirm({"workers": "4"}).code == "plain-fails"
    assert machine.ran == [{}]


def test_a_plain_run_that_dies_later_leaves_what_was_measured():
    """The data may have been removed meanwhile: two runs are there that say something."""
    left = [1, 1, 1]

    def parts(knobs):
        return faster(knobs) if left and left.pop() else Missing("failed", "1")

    found = Machine(parts).confirm({"workers": "4"}, plain_s=14.0)
    assert (found.code, found.pairs) == ("confirmed", 1)


def test_runs_of_too_few_steps_judge_nothing():
    """On a machine so busy that the start took all of the time."""
    found = Machine(lambda knobs: Missing("too-few-steps")).confirm({"workers": "4"})
    assert (found.code, found.knobs) == ("no-time", {"workers": "4"})


@pytest.mark.parametrize(("late", "code", "pairs"), [(3, "confirmed", 1), (2, "no-time", 0)])
def test_a_later_run_of_too_few_steps_leaves_what_was_measured(late, code, pairs):
    """Seen: others took the cores in the third run, and the pair before it was thrown away."""
    count = iter(range(1, 99))
    machine = Machine(lambda knobs: Missing("too-few-steps") if next(count) == late else faster(knobs))
    found = machine.confirm({"workers": "4"}, plain_s=14.0)
    assert (found.code, found.pairs) == (code, pairs)


def test_a_later_tuned_run_that_dies_writes_nothing():
    count = iter(range(1, 99))
    machine = Machine(lambda knobs: Missing("failed", "1") if next(count) == 3 else faster(knobs))
    assert machine.confirm({"workers": "4"}, plain_s=14.0).code == "tuned-fails"


def test_of_too_few_steps_without_a_setting_the_rest_says_nothing():
    def parts(knobs):
        building = {"building": 20.0 if "cudnn_benchmark" in knobs else 0.0}
        return Missing("too-few-steps") if knobs == {"workers": "4"} else {**faster(knobs), **building}

    found = Machine(parts).confirm({"workers": "4", "cudnn_benchmark": "on"}, room_s=400.0, plain_s=14.0)
    assert found.code == "not-faster"


def test_what_did_not_come_on_is_not_kept():
    """Seen: it stood in the profile, and every later run called it an error of flatout's."""
    machine = Machine(faster, refused={"channels_last": "layout-lost"})
    found = machine.confirm({"workers": "4", "channels_last": "on"}, plain_s=14.0)
    assert (found.code, found.knobs, found.not_on) == ("confirmed", {"workers": "4"}, {"channels_last": "layout-lost"})
    assert whole_run_promise.told(found, by_epoch=True).not_on == found.not_on


def test_where_nothing_came_on_nothing_is_confirmed():
    machine = Machine(lambda knobs: {"steps": 5.0 if knobs else 10.0}, refused={"tf32": "no-such-device"})
    found = machine.confirm({"tf32": "on"}, plain_s=14.0)
    assert (found.code, found.knobs) == ("unclear", {})


def test_a_run_that_took_a_setting_back_is_run_again():
    machine = Machine(faster, takes_back=[["tf32"]])
    found = machine.confirm({"workers": "4", "tf32": "on"}, plain_s=14.0)
    assert (found.code, found.pairs, found.not_on) == ("confirmed", 2, {})
    assert len(machine.ran) == 5
    assert found.knobs == {"workers": "4", "tf32": "on"}


@pytest.mark.parametrize(("takes_back", "room_s"), [([["tf32"], ["tf32"]], 100.0), ([["tf32"]], 22.0)])
def test_what_is_taken_back_again_is_not_kept(takes_back, room_s):
    """Nor where there is no time for another run."""
    machine = Machine(faster, takes_back=takes_back)
    found = machine.confirm({"workers": "4", "tf32": "on"}, room_s=room_s, plain_s=12.0)
    assert (found.code, found.knobs, found.not_on) == ("confirmed", {"workers": "4"}, {"tf32": "taken-back"})


def test_without_time_nothing_is_run():
    machine = Machine(faster)
    assert machine.confirm({"workers": "4"}, room_s=7.0).code == "no-time"
    assert not machine.ran


def test_a_start_that_was_slow_by_chance_speaks_for_no_side():
    """On a busy machine starts scatter by seconds; no setting is on before the first batch."""
    starts = iter([2.0, 8.0, 3.0, 7.0])
    machine = Machine(lambda knobs: {"start": next(starts), "steps": 4.0 if knobs else 10.0})
    found = machine.confirm({"workers": "4"}, plain_s=14.0)
    assert found.ratio.value == pytest.approx(15.0 / 9.0)


GIB = 1 << 30


def test_a_plain_run_that_read_its_data_from_the_disk_is_left_out():
    """The tuned one after it found them in memory: that is nobody's gain."""
    machine = Machine(faster, noise=[3.0], reads=[2 * GIB, 0, 0, 0])
    found = machine.confirm({"workers": "4"}, plain_s=14.0)
    assert machine.ran[:3] == [{}, {"workers": "4"}, {}]
    assert (found.code, found.cold_bytes) == ("confirmed", 2 * GIB)
    assert found.ratio.value == pytest.approx(13.5 / 5.5)
    assert found.pairs >= 1
    assert whole_run_promise.told(found, by_epoch=True).cold_bytes == 2 * GIB


@pytest.mark.parametrize("reads", [[GIB, GIB, GIB, GIB], [1 << 20, 0, 0, 0]])
def test_runs_that_read_as_much_are_compared(reads):
    found = Machine(faster, reads=reads).confirm({"workers": "4"}, plain_s=14.0)
    assert (found.code, found.cold_bytes, found.pairs) == ("confirmed", 0, 2)


def test_where_nobody_set_a_limit_another_plain_run_comes_in_place_of_the_cold_one():
    machine = Machine(faster, reads=[GIB, 0])
    found = machine.confirm({"workers": "4"}, room_s=20.0, plain_s=10.0, time_may_grow=True)
    assert (found.code, found.pairs, found.cold_bytes) == ("confirmed", 1, GIB)
    assert machine.ran == [{}, {"workers": "4"}, {}]


def test_what_was_shown_does_not_suffer_for_what_was_not():
    """Recorded, the script ends early in whole runs; its workers were shown to help."""

    def parts(knobs):
        return Missing("failed", "1") if "compile" in knobs else faster(knobs)

    machine = Machine(parts)
    found = machine.confirm({"workers": "4", "compile": "graphs"}, plain_s=14.0, undecided=["compile"])
    assert (found.code, found.knobs, found.unconfirmed) == ("confirmed", {"workers": "4"}, {"compile": "graphs"})
    assert Machine(parts).confirm({"workers": "4", "compile": "graphs"}, plain_s=14.0).code == "tuned-fails"


def test_what_was_not_shown_is_the_first_to_go():
    def parts(knobs):
        slow = 3.0 if "precision" in knobs else 1.0
        return {"start": 2.0, "steps": (4.0 if "workers" in knobs else 10.0) * slow}

    machine = Machine(parts)
    found = machine.confirm({"workers": "4", "precision": "bf16"}, plain_s=12.0, undecided=["precision"])
    assert (found.code, found.knobs, found.left_out) == ("confirmed", {"workers": "4"}, {"precision": "bf16"})
    assert machine.ran[-1] == {"workers": "4"}


def test_what_a_slow_disk_gives_in_no_time_is_no_reason():
    """100 MB in a run of 50 s."""
    found = Machine(lambda knobs: {"start": 2.0, "steps": 20.0 if knobs else 48.0}, reads=[100 << 20, 0]).confirm(
        {"workers": "4"}, room_s=200.0, plain_s=50.0
    )
    assert (found.code, found.cold_bytes) == ("confirmed", 0)


def test_without_time_for_another_plain_run_nothing_is_said():
    found = Machine(faster, reads=[GIB, 0]).confirm({"workers": "4"}, room_s=9.0)
    assert (found.code, found.knobs) == ("no-time", {"workers": "4"})


def test_runs_of_different_lengths_that_agree_scatter_little():
    """Each by the epochs that it had: five in one run, one in another that was ended early."""

    def run(epochs, epoch_s):
        parts = promise.without_more({"start": 2.0, "steps": epochs * epoch_s})
        return Measured(parts=parts, epochs=float(epochs), step_s=epoch_s / 100)

    arms = whole_run_promise.Arms(plain=[run(5, 10.0), run(1, 10.0)], tuned=[run(5, 5.0), run(1, 5.0)])
    found = whole_run_promise.judged(arms, {"tf32": "on"}, FIVE_EPOCHS, None)
    assert found.code == "confirmed"
    assert found.ratio.value == pytest.approx(52 / 27)
    assert found.ratio.low > 1.7
