"""What compiling costs once is what it costs with the compiler's cache filled: `flatout run` finds what these runs built."""

import pytest
from test_confirm import Machine, faster

from flatout.base.records import Missing
from flatout.tune.confirmation import whole_run_promise
from flatout.tune.confirmation.compare_whole_runs import Once
from flatout.tune.search.run_length import RunLength
from flatout.tune.search.time_budget import Costs

COMPILED = {"workers": "4", "compile": "default"}
ONCE = {"compile": Once(build_s=20.0, gain=1.2)}


class Compiler:
    """Parts of the script of five epochs: whoever compiles first builds for 20 s, all others for `warm_s`."""

    def __init__(self, warm_s, steps_s=20.0, cold_s=20.0):
        self.warm_s, self.steps_s, self.next_s = warm_s, steps_s, cold_s

    def __call__(self, knobs):
        built_s = 0.0
        if "compile" in knobs:
            built_s, self.next_s = self.next_s, self.warm_s
        steps = self.steps_s / (1.2 if "compile" in knobs else 1.0) / (2.0 if "workers" in knobs else 1.0)
        return {"start": 2.0, "building": built_s, "steps": steps, "exit": 0.5}


def test_the_price_is_that_of_the_second_run():
    """Seen: a setting was dropped for 20 s of building, and each later run under it would have built in three."""
    machine = Machine(Compiler(warm_s=1.0))
    found = machine.confirm(COMPILED, plain_s=22.0, room_s=150.0, once=ONCE)
    assert (found.code, found.knobs) == ("confirmed", COMPILED)
    assert found.tuned.once["building"].value == pytest.approx(1.0)
    assert found.ratio.value == pytest.approx(22.5 / (2.5 + 1.0 + 20 / 2.4))
    assert (found.building.seconds, found.building.warm, found.building.cold_s) == (pytest.approx(1.0), True, 20.0)
    assert whole_run_promise.told(found, by_epoch=True).building == found.building


def test_what_this_run_does_not_repay_at_that_price_is_left_out():
    """It is faster than the plain script with it, and faster still without."""
    machine = Machine(Compiler(warm_s=4.0))
    found = machine.confirm(COMPILED, plain_s=22.0, room_s=200.0, once=ONCE)
    assert (found.code, found.knobs, found.left_out) == ("confirmed", {"workers": "4"}, {"compile": "default"})
    assert found.ratio.value == pytest.approx(22.5 / 12.5)
    assert found.building is None


def test_where_there_is_no_time_to_run_without_it_what_was_confirmed_stays():
    machine = Machine(Compiler(warm_s=4.0, cold_s=4.0))
    found = machine.confirm(COMPILED, plain_s=22.0, room_s=75.0, once=ONCE)
    assert (found.code, found.knobs) == ("confirmed", COMPILED)


def test_a_run_without_it_that_dies_takes_nothing_back():
    compiler = Compiler(warm_s=4.0)
    machine = Machine(lambda knobs: Missing("failed", "1") if knobs == {"workers": "4"} else compiler(knobs))
    found = machine.confirm(COMPILED, plain_s=22.0, room_s=200.0, once=ONCE)
    assert (found.code, found.knobs) == ("confirmed", COMPILED)


def test_of_an_unknown_length_it_is_not_weighed():
    machine = Machine(Compiler(warm_s=4.0, steps_s=400.0))
    found = machine.confirm(COMPILED, length=None, room_s=200.0, once={"compile": Once(build_s=20.0, gain=1.001)})
    assert found.knobs == COMPILED


def test_a_first_run_that_builds_for_long_is_not_the_last_word():
    """After one pair the tuned run looks slower than the plain one, and a second one is not."""
    machine = Machine(Compiler(warm_s=1.0, cold_s=18.0))
    found = machine.confirm(COMPILED, plain_s=22.0, room_s=150.0, once=ONCE)
    assert len([knobs for knobs in machine.ran if knobs == COMPILED]) >= 2
    assert found.knobs == COMPILED


def test_seen_once_it_is_told_so():
    machine = Machine(Compiler(warm_s=1.0, cold_s=1.5, steps_s=100.0))
    found = machine.confirm(COMPILED, room_s=9.0, length=RunLength(steps=500, epochs=5.0, source="asked"), once=ONCE)
    assert found.pairs == 1
    assert (found.building.seconds, found.building.warm) == (1.5, False)
    assert found.building.cold_s == 20.0


def test_nothing_is_told_of_building_where_nothing_is_compiled():
    assert Machine(faster).confirm({"workers": "4"}, plain_s=14.0).building is None
    recorded = Machine(faster).confirm({"workers": "4", "compile": "graphs"}, plain_s=14.0)
    assert recorded.building is None


def test_a_tuned_run_has_the_time_that_building_took():
    seen = []

    class Watched(Machine):
        def run(self, knobs, plain, until, longest_s):
            seen.append((bool(knobs), until["stop_s"], longest_s))
            return super().run(knobs, plain, until, longest_s)

    Watched(Compiler(warm_s=1.0)).confirm(COMPILED, plain_s=22.0, once=ONCE)
    plain, tuned = (next(one for one in seen if one[0] is knobs) for knobs in (False, True))
    assert tuned[1] == plain[1] + 20.0
    assert tuned[2] > plain[2]


def test_slow_steps_have_the_time_to_settle():
    seen = []

    class Watched(Machine):
        def run(self, knobs, plain, until, longest_s):
            seen.append(until)
            return super().run(knobs, plain, until, longest_s)

    costs = Costs(looked_s=2.0, start_s=2.0, step_s=1.0)
    Watched(faster).confirm({"workers": "4"}, room_s=costs.pair_s, costs=costs, length=None)
    assert seen[0]["stop_s"] >= 20  # ten steps until it has settled, eight that are timed, a turn
    assert seen[0]["cut_s"] >= 4
