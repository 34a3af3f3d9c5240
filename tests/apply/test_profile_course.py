"""The settings of a profile in a run: put on at once, judged in turn, and only what is slower by itself taken back.

The loop is imagined, its clock is the agent's own; that they come on in a real run at the same step is seen in one.
"""

import json
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from _flatout_agent.knobs.knob import applied
from _flatout_agent.modes import median_step_time, slow_settings_check
from _flatout_agent.modes.profile_mode import ProfileCourse
from _flatout_agent.timeline.step_clock import FORWARD, TURN, StepClock

MS = 1_000_000


class Loop:
    """A driver whose steps take `step_ms(settings that are on)`, and whose epochs turn every so many steps."""

    def __init__(self, step_ms, turn_ms=lambda on: 0.0, epoch=10**9):
        self.step_ms, self.turn_ms, self.epoch = step_ms, turn_ms, epoch
        clock = StepClock(0)
        self.tape = SimpleNamespace(tell=lambda: None, clock=clock)
        self.scene = SimpleNamespace(
            steps_done=0,
            shapes=list,
            handover=SimpleNamespace(unsettled=lambda: False, parks=False),
            compilations=SimpleNamespace(open=False),
        )
        self.on, self.early, self.written, self.plain_steps = {}, {}, [], 0
        self.board = SimpleNamespace(on=self.on, numerics=dict, proofs=lambda: {name: applied() for name in self.on})

    def synchronize(self):
        pass

    def set(self, values):
        self.on.clear()
        self.on.update(values)
        return {name: applied() for name in values}

    def write(self, kind, **fields):
        self.written.append((kind, fields))

    def train(self, course, steps):
        course.begin(self)
        goes_on = True
        for step in range(1, steps + 1):
            clock = self.tape.clock
            clock.steps = self.scene.steps_done = step
            clock.totals[FORWARD] += int(self.step_ms(self.on) * MS)
            if step % self.epoch == 0:
                clock.turns += 1
                clock.totals[TURN] += int(self.turn_ms(self.on) * MS)
            self.plain_steps += not self.on
            goes_on = goes_on and course.stepped(self, 0)
        return goes_on

    def told(self, kind):
        return [fields for one, fields in self.written if one == kind]


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """No other process takes the cores of an imagined machine."""
    monkeypatch.setattr(median_step_time.OtherLoad, "took_the_cores", lambda self: False)


def course(values, plain=None, check=True):
    return ProfileCourse(values, check, None, plain)


def test_a_confirmed_profile_comes_on_at_once_and_what_is_as_fast_as_promised_is_not_touched():
    loop = Loop(lambda on: 2.0 if on else 10.0)
    assert not loop.train(course({"workers": 4}, {"step_s": 0.010}), 400)
    assert loop.plain_steps == 0
    assert loop.told("knobs")[0]["step"] == 0
    assert not loop.told("taken-back")


def test_without_a_plain_speed_few_plain_steps_come_first():
    loop = Loop(lambda on: 2.0 if on else 10.0)
    loop.train(course({"workers": 4}), 400)
    assert loop.plain_steps <= 4
    assert not loop.told("taken-back")


def test_what_is_slower_is_taken_back_by_itself():
    """Two settings help, and one costs more than both gain."""

    def step_ms(on):
        return 10.0 - 2.0 * ("precision" in on) - 1.0 * ("gc_policy" in on) + 6.0 * ("workers" in on)

    loop = Loop(step_ms)
    loop.train(course({"precision": "bf16", "gc_policy": "on", "workers": 4}, {"step_s": 0.010}), 2000)
    assert [(one["knobs"], one["code"]) for one in loop.told("taken-back")] == [(["workers"], "slower-in-turn")]
    assert loop.on == {"precision": "bf16", "gc_policy": "on"}
    assert loop.scene.handover.parks is False


def test_a_machine_that_is_slower_today_is_not_blamed_on_the_settings():
    """All is half as fast as when the profile was made, and the settings still gain what they gained."""
    loop = Loop(lambda on: 16.0 if on else 20.0)
    loop.train(course({"precision": "bf16"}, {"step_s": 0.010}), 2000)
    assert loop.told("judged")[0]["step_s"] == pytest.approx(0.016)
    assert not loop.told("taken-back")
    assert loop.on == {"precision": "bf16"}
    assert loop.plain_steps < 150


def test_a_dear_turn_of_the_epoch_counts_as_far_as_epochs_are_short():
    """Workers that are started anew at every turn: they gain in the steps, and lose more where an epoch has few."""
    for epoch, kept in ((8, False), (400, True)):
        loop = Loop(lambda on: 5.0 if on else 10.0, lambda on: 200.0 if on else 2.0, epoch)
        loop.train(course({"workers": 4}, {"step_s": 0.010, "turn_s": 0.002}), 3000)
        assert ("workers" in loop.on) is kept
        assert bool(loop.told("taken-back")) is not kept


def test_a_stall_now_and_then_takes_nothing_back():
    count = iter(range(10**6))

    def step_ms(on):
        return (400.0 if next(count) % 37 == 20 else 0.0) + (8.0 if on else 10.0)

    loop = Loop(step_ms)
    loop.train(course({"workers": 4}, {"step_s": 0.010}), 3000)
    assert not loop.told("taken-back")


def test_what_was_timed_while_others_took_the_cores_is_void_and_timed_again(monkeypatch):
    taken = iter([True, True])
    monkeypatch.setattr(median_step_time.OtherLoad, "took_the_cores", lambda self: next(taken, False))
    loop = Loop(lambda on: 30.0 if on and loop.scene.steps_done < 300 else 8.0 if on else 10.0)
    assert not loop.train(course({"workers": 4}, {"step_s": 0.010}), 2000)
    assert not loop.told("taken-back")
    assert [one["step"] > 400 for one in loop.told("judged")] == [True]


def test_a_machine_that_is_never_quiet_leaves_what_was_confirmed(monkeypatch):
    monkeypatch.setattr(median_step_time.OtherLoad, "took_the_cores", lambda self: True)
    loop = Loop(lambda on: 30.0 if on else 10.0)
    assert not loop.train(course({"workers": 4}, {"step_s": 0.010}), 3000)
    assert loop.on == {"workers": 4}


def test_slow_steps_are_judged_by_few():
    loop = Loop(lambda on: 2000.0 if on else 1600.0)
    loop.train(course({"precision": "bf16"}, {"step_s": 1.6}), 300)
    assert [one["knobs"] for one in loop.told("taken-back")] == [["precision"]]
    assert loop.told("taken-back")[0]["step"] < 60


def test_flags_are_what_the_user_wants(monkeypatch):
    loop = Loop(lambda on: 30.0 if on else 10.0)
    loop.train(course({"workers": 4}, {"step_s": 0.010}, check=False), 400)
    assert loop.on == {"workers": 4}
    monkeypatch.setenv("WORLD_SIZE", "2")  # processes that train together must not part ways
    together = Loop(lambda on: 30.0 if on else 10.0)
    together.train(course({"workers": 4}, {"step_s": 0.010}), 400)
    assert together.on == {"workers": 4}


def test_the_loaders_settings_are_turned_together():
    groups = slow_settings_check._groups(
        {"workers": 4, "persistent_workers": "on", "precision": "bf16", "cudnn_benchmark": "on"}
    )
    assert groups == [["workers", "persistent_workers"], ["precision"]]


def test_what_is_compiled_is_turned_with_what_it_was_compiled_for():
    groups = slow_settings_check._groups(
        {"precision": "bf16", "fused_optimizer": "on", "compile": "default", "channels_last": "on"}
    )
    assert groups == [["precision", "compile", "channels_last"], ["fused_optimizer"]]


TRAIN = """
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.full((8,), float(index % 7)), index % 3

if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for x, y in DataLoader(Data(), batch_size=4):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def test_in_a_real_run_they_come_on_at_the_same_step_each_time(flatout, script, tmp_path):
    (tmp_path / "flatout.toml").write_text(
        "[knobs]\nworkers = 2\ngc_policy = true\n[fingerprint]\ncard = 'CPU'\n[promise]\nplain_step_s = 0.02\n"
        "[promise.put_off]\ngc_policy = 45\n",
        encoding="utf-8",
    )
    path = script(TRAIN)
    assert all(flatout("run", path).returncode == 0 for _ in range(2))
    steps = []
    for journal in (tmp_path / ".flatout" / "runs").glob("*/journal-*.jsonl"):
        lines = [json.loads(line) for line in journal.read_text(encoding="ascii").splitlines()]
        put_on, later = (line for line in lines if line["kind"] == "knobs")
        assert (later["step"], list(later["outcomes"])) == (45, ["gc_policy"])
        assert put_on["outcomes"]["workers"]["status"] == "applied"
        steps.append(put_on["step"])
    assert len(steps) == 2
    assert steps[0] == steps[1] <= 6


def test_what_costs_time_once_comes_on_later_at_the_step_that_the_profile_says():
    loop = Loop(lambda on: {0: 10.0, 1: 5.0, 2: 3.0}[len(on)])
    later = ProfileCourse({"workers": 4, "compile": "default"}, True, None, {"step_s": 0.010}, {"compile": 300, "other": 5})
    assert not loop.train(later, 600)
    assert [(told["step"], set(told["outcomes"])) for told in loop.told("knobs")] == [(0, {"workers"}), (300, {"compile"})]
    assert loop.on == {"workers": 4, "compile": "default"}
    assert len(loop.told("proofs")) == 2


def test_it_comes_on_at_its_step_though_others_took_the_cores(monkeypatch):
    monkeypatch.setattr(median_step_time.OtherLoad, "took_the_cores", lambda self: True)
    loop = Loop(lambda on: 5.0)
    later = ProfileCourse({"workers": 4, "compile": "default"}, True, None, {"step_s": 0.010}, {"compile": 100})
    loop.train(later, 300)
    assert [told["step"] for told in loop.told("knobs")] == [0, 100]


def test_what_was_taken_back_stays_off_when_something_comes_on_later():
    loop = Loop(lambda on: 20.0 if "tf32" in on else 5.0 if "compile" in on else 10.0)
    later = ProfileCourse({"tf32": "on", "compile": "default"}, True, None, {"step_s": 0.010}, {"compile": 500})
    loop.train(later, 900)
    assert loop.told("taken-back")[0]["knobs"] == ["tf32"]
    assert loop.on == {"compile": "default"}
