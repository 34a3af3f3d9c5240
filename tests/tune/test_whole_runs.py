"""Runs that were ended early, put together: what comes every so many steps counts as often as it comes in the whole run."""

import pytest

from _flatout_agent.wire import PHASES
from flatout.tune.confirmation.whole_run_parts import RunMade, Scale, measured
from flatout.tune.confirmation.whole_run_promise import Arms, judged
from flatout.tune.search.run_length import RunLength

SETTLED = 24
START_S = 5.0


class Script:
    """Imagined: evaluates after every so many steps within its epochs, and at each epoch's end."""

    def __init__(self, step_s, evaluation_s, every, turn_s=0.0):
        self.step_s, self.evaluation_s, self.every, self.turn_s = step_s, evaluation_s, every, turn_s

    def account(self, steps, turns=0):
        times = steps // self.every
        spent = dict.fromkeys(PHASES, 0)
        spent |= {"startup": START_S, "forward": steps * self.step_s, "turn": 0.1 * turns}
        spent["validation"] = times * self.evaluation_s + turns * self.turn_s
        told = [times, int(1e9 * times * self.evaluation_s), self.every, times * self.every]
        return {
            "steps": steps,
            "turns": turns,
            "batches": steps,
            "phases": [int(1e9 * spent[name]) for name in PHASES],
            "recurring": {"validation": told} if times else {},
        }

    def cut(self, loop_s, turns=0, scale=None):
        """As seen from outside, when its loop was ended after so long."""
        steps = SETTLED
        while steps * self.step_s + steps // self.every * self.evaluation_s < loop_s:
            steps += 1
        last = self.account(steps, turns)
        lines = [
            {"kind": "process", "pid": 1},
            {"kind": "settled", **self.account(SETTLED)},
            {"kind": "window", **last},
            {"kind": "ended-early"},
            {"kind": "end"},
        ]
        made = RunMade(wall_s=sum(last["phases"]) * 1e-9, code=0, journals=[lines])
        return measured(made, scale or Scale(batches=None))


@pytest.mark.parametrize("loop_s", [3.0, 5.0, 7.2, 12.0])
def test_an_evaluation_every_250_steps_counts_as_often_as_it_comes(loop_s):
    """Seen in thought: 2.26, 1.54 and 1.64 where a run is 1.83 times as fast, by where the loop was ended."""
    plain, tuned = Script(0.015, 1.6, 250), Script(0.0053, 1.6, 250)
    arms = Arms(plain=[plain.cut(loop_s)] * 2, tuned=[tuned.cut(loop_s)] * 2)
    found = judged(arms, {}, RunLength(steps=100_000, source="asked"), None)
    loop = [100_000 * one.step_s + 400 * one.evaluation_s + START_S for one in (plain, tuned)]
    assert found.ratio.value == pytest.approx(loop[0] / loop[1], rel=0.02)


def test_each_arm_has_its_own_price():
    plain, tuned = Script(0.010, 2.0, 200), Script(0.005, 1.0, 200)
    arms = Arms(plain=[plain.cut(8.0)], tuned=[tuned.cut(8.0)])
    found = judged(arms, {}, None, None)
    assert found.plain.each["validation"].value == pytest.approx(2.0 / 200 * 100)
    assert found.tuned.each["validation"].value == pytest.approx(1.0 / 200 * 100)


def test_what_comes_at_the_end_of_an_epoch_counts_once_for_it():
    """Its epochs of 5,000 batches are cut after some hundreds; twenty evaluations and one are in each."""
    script = Script(0.010, 2.0, 250, turn_s=3.0)
    run = script.cut(8.0, turns=1, scale=Scale(batches=5000.0))
    found = judged(Arms(plain=[run], tuned=[run]), {}, None, None)
    assert found.plain.each["validation"].value == pytest.approx(20 * 2.0 + 3.0)
    assert found.plain.each["turns"].value == pytest.approx(0.1)


def test_what_nobody_met_is_not_counted():
    script = Script(0.010, 2.0, 10_000)
    found = judged(Arms(plain=[script.cut(3.0)], tuned=[script.cut(3.0)]), {}, None, None)
    assert found.plain.each["validation"].value == 0


@pytest.mark.parametrize(("slower", "share"), [(0.0, 1.0), (2e-9, 0.75), (-2e-9, 1.25), (1.0, 0.1)])
def test_what_saving_takes_longer_in_a_trial_is_taken_off(slower, share):
    """Two checkpoints of 500 MB in 8 s."""
    phases = [int(8e9) if name == "checkpoint" else int(1e9) if name == "forward" else 0 for name in PHASES]
    written = {"bytes": 10**9, "largest": 5 * 10**8, "path": "/home/a/last.pt"}
    window = {"kind": "window", "steps": 100, "phases": phases, "saves": written, "turns": 0}
    lines = [{"kind": "process", "pid": 1}, window, {"kind": "end"}]
    made = RunMade(wall_s=9.0, code=0, journals=[lines], slower_a_byte=slower)
    assert measured(made, Scale(batches=None)).parts["checkpoint"] == pytest.approx(8.0 * share)
