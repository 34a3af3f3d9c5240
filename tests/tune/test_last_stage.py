"""What comes after the last epoch: runs that came to their end have it, runs that were ended early do not."""

import pytest
from test_confirm import FIVE_EPOCHS, Machine

from _flatout_agent.wire import PHASES
from flatout.base.records import replace
from flatout.measure import promise
from flatout.measure.promise import Measured
from flatout.measure.recurring import Recurring
from flatout.tune.confirmation import whole_run_promise
from flatout.tune.confirmation.whole_run_parts import RunMade, Scale, _tail, measured


class WithATest(Machine):
    """Five epochs, and a final test of 30 s after the last one. Its epochs are cut by the seconds of the loop."""

    def __init__(self, plain_s, tuned_s):
        super().__init__(None)
        self.steps_s = {False: plain_s, True: tuned_s}

    def run(self, knobs, plain, until, longest_s):
        self.ran.append(dict(knobs))
        steps = self.steps_s[bool(knobs)]
        parts = promise.without_more({"start": 2.0, "steps": steps, "validation": 5.0})
        if steps <= until["cut_s"]:
            parts["validation"] += 30.0
            self.clock += sum(parts.values())
            return Measured(parts=parts, epochs=5.0, step_s=steps / 500, tail={"validation": 30.0})
        self.clock += until["cut_s"] + 3.0
        each = {name: parts[name] / 5 for name in promise.EACH}
        return Measured(parts={**parts, **each}, epochs=1.0, step_s=steps / 500, whole=False)


@pytest.mark.parametrize("length", [FIVE_EPOCHS, None])
def test_a_final_test_burdens_both_sides(length):
    """Seen: the tuned run came to its end, its final test was counted against the plain run that had none, and no profile."""
    machine = WithATest(20.0, 10.0)
    found = machine.confirm({"workers": "4"}, room_s=100.0, length=length)
    assert machine.ran == [{}, {"workers": "4"}]
    assert found.ratio.value == pytest.approx((2 + 20 + 5 + 30) / (2 + 10 + 5 + 30))
    assert (found.code, found.whole, found.ending, found.epochs) == ("confirmed", False, True, 5.0)
    told = whole_run_promise.told(found, by_epoch=True)
    assert (told.plain_s, told.tuned_s) == (57.0, 47.0)
    assert told.parts["plain"]["validation"] == 35.0
    assert sum(told.parts["plain"].values()) == pytest.approx(57.0)


def test_the_plain_run_is_made_whole_where_there_is_time():
    machine = WithATest(40.0, 20.0)
    found = machine.confirm({"workers": "4"}, room_s=200.0)
    assert machine.ran == [{}, {"workers": "4"}, {}]
    assert (found.code, found.whole, found.pairs) == ("confirmed", True, 1)
    assert found.ratio.value == pytest.approx(77 / 57)


def test_where_no_run_came_to_its_end_it_is_not_in_the_promise():
    found = WithATest(400.0, 200.0).confirm({"workers": "4"}, room_s=100.0)
    assert (found.whole, found.ending) == (False, False)
    assert not whole_run_promise.told(found, by_epoch=True).ending


def line(kind, steps, turns, **seconds):
    return {"kind": kind, "steps": steps, "turns": turns, "phases": [int(1e9 * seconds.get(name, 0)) for name in PHASES]}


def test_it_is_what_exceeds_the_usual_end_of_an_epoch():
    lines = [
        line("settled", 24, 0, forward=1.0),
        line("window", 150, 1, forward=6.0, validation=2.0, checkpoint=0.5),
        line("window", 320, 3, forward=12.0, validation=6.0, checkpoint=1.5),
        line("window", 350, 3, forward=14.0, validation=6.0, checkpoint=1.5),
        line("window", 400, 3, forward=16.0, validation=15.0, checkpoint=2.0),
    ]
    assert _tail(lines) == pytest.approx({"validation": 7.0, "checkpoint": 0.0, "script": 0.0})
    assert _tail([*lines[:-1], line("window", 400, 3, forward=16.0, validation=8.1, checkpoint=2.1)]) == {}
    assert _tail(lines[1:]) == {}
    assert _tail([lines[0], line("window", 90, 0, forward=4.0), line("window", 100, 0, forward=5.0, validation=2.0)]) == {}


def test_what_comes_every_so_many_steps_is_no_final_test():
    """Each epoch of 100 steps has evaluations of 2 s after every 40; the last epoch has one more of them by chance."""
    lines = [
        {**line("settled", 24, 0, forward=1.0), "recurring": {}},
        {**line("window", 102, 1, forward=6.0, validation=5.0), "recurring": {"validation": [2, 4_000_000_000, 40, 80]}},
        {**line("window", 202, 2, forward=12.0, validation=12.0), "recurring": {"validation": [5, 10_000_000_000, 40, 200]}},
        {**line("window", 300, 2, forward=18.0, validation=26.0), "recurring": {"validation": [7, 14_000_000_000, 40, 280]}},
    ]
    assert _tail(lines) == pytest.approx({"validation": 9.0, "checkpoint": 0.0, "script": 0.0})


def test_a_final_test_and_what_recurs_count_once_each_on_both_sides():
    """The plain run came to its end, the tuned one was ended early: five epochs of 100 steps, one evaluation of 1 s in 50."""
    each = {"start": 2.0, "validation": 10.0 + 30.0}
    recurring = {"validation": Recurring(count=2, each_s=1.0, first=50, last=100, steps=140)}
    whole = Measured(parts=promise.without_more({**each, "steps": 40.0}), epochs=5.0, tail={"validation": 30.0}, unit_steps=100)
    parts = promise.without_more({"start": 2.0, "steps": 4.0})
    cut = Measured(parts=parts, epochs=1.0, whole=False, recurring=recurring, unit_steps=100)
    found = whole_run_promise.judged(whole_run_promise.Arms(plain=[whole], tuned=[cut]), {}, FIVE_EPOCHS, None)
    assert found.ratio.value == pytest.approx((2 + 40 + 10 + 30) / (2 + 20 + 10 + 30))


def test_what_the_parent_of_training_processes_does_at_the_end_comes_once():
    """Hogwild's, say; two thirds of what saving took are the protection's, in the tail as elsewhere."""
    steps = [line("settled", 24, 0, forward=1.0), line("window", 100, 0, forward=8.0)]
    saves = {"saves": {"bytes": 10, "largest": 10, "path": "last.pt"}}
    last = {**line("window", 200, 1, forward=16.0, checkpoint=3.0), **saves}
    trained = [{"kind": "process", "pid": 2}, *[{"batches": one["steps"], **one} for one in (*steps, last)], {"kind": "end"}]
    parent = [{"kind": "process", "pid": 1}, {"batches": 0, **line("window", 0, 0, validation=5.0)}, {"kind": "end"}]
    made = RunMade(wall_s=25.0, code=0, journals=[trained, parent], slower_a_byte=0.2)
    found = measured(made, Scale(batches=100.0))
    assert (found.parts["validation"], found.tail["validation"]) == (5.0, 5.0)
    assert found.parts["checkpoint"] == pytest.approx(1.0)
    assert found.parts["exit"] == pytest.approx(1.0)


class ColdFirst(WithATest):
    """Its first run reads its data from the disk."""

    def run(self, knobs, plain, until, longest_s):
        return replace(super().run(knobs, plain, until, longest_s), read_bytes=0 if len(self.ran) > 1 else 1 << 30)


def test_the_plain_run_is_made_whole_also_where_the_first_was_left_out():
    machine = ColdFirst(40.0, 20.0)
    found = machine.confirm({"workers": "4"}, room_s=250.0)
    assert machine.ran[:4] == [{}, {"workers": "4"}, {}, {}]
    assert (found.code, found.whole, found.cold_bytes) == ("confirmed", True, 1 << 30)
    assert found.ratio.value == pytest.approx(77 / 57)
