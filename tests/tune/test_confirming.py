"""What stands around a confirmation: how long a plain run will take, what an epoch is, what becomes of the profile."""

from collections import namedtuple

import pytest
from test_run_length import line, recorded

from flatout.base.records import Missing, replace
from flatout.base.words import Words
from flatout.cli import whole_runs
from flatout.knobs.model import Came, KnobUse
from flatout.launch.disk_reads import Data
from flatout.measure.promise import Measured, without_more
from flatout.tune.confirmation.whole_run_parts import Scale
from flatout.tune.confirmation.whole_run_promise import Arms, judged
from flatout.tune.search.questions_and_answers import Ceilings, Ending, Finished
from flatout.tune.search.run_length import RunLength, plain_wall_s
from flatout.tune.search.time_budget import Budget, Costs

Trials = namedtuple("Trials", "ready plain_per_step start_s", defaults=({}, None, 5.0))
NONE = Missing("not-measured")
STEPS = RunLength(steps=2000, source="own-argument")
EPOCHS = RunLength(steps=1000, epochs=10.0, source="own-argument")


def ended(**more):
    told = {
        "ending": Ending.TUNED, "profile": {"workers": "4"}, "decisions": [], "speedup": 1.5, "lower": 1.4, "upper": 1.6,
        "baseline": 200.0, "final": 300.0, "ceilings": Ceilings(), "bound_before": None, "bound_after": None, "noise": NONE,
        "drift": 0.0, "throttled": False, "spent_s": 1.0, "segments": 1,
    }  # fmt: skip
    return Finished(**{**told, **more})


@pytest.mark.parametrize(
    ("trials", "length", "earlier_s", "step_s", "foreseen_s"),
    [
        (Trials({"samples": 400}), EPOCHS, None, 0.1, 5.0 + 10 * 400 / 200),
        (Trials(plain_per_step=2.0), STEPS, None, 0.1, 5.0 + 2000 * 2 / 200),  # without a loader
        (Trials(), STEPS, None, 0.1, 5.0 + 2000 * 0.1),  # steps that hold nobody knows what
        (Trials({"samples": 400}), RunLength(steps=9, epochs=1.0, source="earlier-run"), 33.0, 0.1, 33.0),
        (Trials({"samples": 400}), EPOCHS, 33.0, 0.1, 25.0),  # the argument may be another one today
        (Trials(), STEPS, None, 0.0, None),
        (Trials(), RunLength(epochs=3.0, source="own-argument"), None, 0.1, None),
        (Trials({"samples": 400}), None, 33.0, 0.1, None),
    ],
)
def test_how_long_the_plain_run_will_take(trials, length, earlier_s, step_s, foreseen_s):
    """Seen: a run of 30 s whose steps were known was put together from parts, because it has no loader."""
    assert whole_runs._plain_s(ended(), trials, length, earlier_s, step_s) == foreseen_s


def test_without_a_baseline_the_first_steps_tell():
    assert whole_runs._plain_s(ended(baseline=NONE), Trials({"samples": 400}), EPOCHS, None, 0.02) == 25.0


def test_an_earlier_run_without_settings_tells_how_long_it_takes(tmp_path, script):
    command = line(script("pass"))
    assert plain_wall_s(command, tmp_path) is None
    recorded(tmp_path, "20260101-000000-aaaa", command, 90, wall_s=31.0)
    use = KnobUse(name="workers", value="4", source="profile", came=Came.APPLIED)
    recorded(tmp_path, "20260102-000000-bbbb", command, 90, wall_s=7.0, knobs=[use])
    recorded(tmp_path, "20260103-000000-cccc", command, 90, wall_s=6.0, exit_code=1)
    recorded(tmp_path, "20260104-000000-dddd", command, 90, wall_s=5.0, notes=["cut-short"])
    recorded(tmp_path, "20260105-000000-eeee", line(script("pass"), "--lr", "1"), 90, wall_s=4.0)
    assert plain_wall_s(command, tmp_path) == 31.0


@pytest.mark.parametrize(
    ("batches", "knobs", "of_an_epoch"),
    [(100, {}, 100), (100, {"batch_size": "64"}, 50), (None, {"batch_size": "64"}, None), (100, {"workers": "4"}, 100)],
)
def test_an_epoch_of_another_batch_has_another_number_of_batches(batches, knobs, of_an_epoch):
    end = namedtuple("End", "batch")(namedtuple("Batch", "own")(32))
    assert whole_runs._scale(batches, knobs, end) == Scale(batches=of_an_epoch)


class Screen:
    def __init__(self):
        self.words, self.said = Words("en"), []

    def say(self, sentence):
        self.said.append(sentence)


@pytest.mark.parametrize(("code", "kept"), [("confirmed", True), ("unclear", False), ("not-faster", False), ("no-time", True)])
def test_what_whole_runs_speak_against_is_not_written(code, kept):
    room = whole_runs.Room(Budget(code="usual", search_s=60.0, confirm_s=40.0), Costs(looked_s=2.0, start_s=2.0), 40.0)
    runs = [Measured(parts=without_more({"start": 2.0, "steps": 9.0}), epochs=10.0)] * 2
    found = replace(judged(Arms(plain=runs, tuned=runs), {"workers": "4"}, EPOCHS, None), code=code)
    end = whole_runs._with(ended(), found, whole_runs.Units(True, 100.0), Data(), Screen(), room)
    assert end.profile == ({"workers": "4"} if kept else {})
    assert end.whole_run.code == code
    assert bool(end.whole_run.budget) is (code in ("no-time", "unclear"))


def test_a_loop_that_could_not_be_told_from_the_plain_one_says_nothing_against_whole_runs():
    assert whole_runs._loop(ended()) is not None
    assert whole_runs._loop(ended(lower=0.97)) is None


@pytest.mark.parametrize(("code", "left_s"), [("asked", 30.0), ("run", 40.0)])
def test_a_second_confirmation_has_what_is_left_of_a_limit(code, left_s, monkeypatch):
    now = iter((100.0, 110.0))
    monkeypatch.setattr(whole_runs.SystemClock, "monotonic", lambda self: next(now))
    room = whole_runs.Room(Budget(code=code, search_s=60.0, confirm_s=40.0), Costs(looked_s=1.0, start_s=1.0), 40.0)
    seen = []
    end, left = whole_runs.confirmed_with_time_left(lambda end, room: seen.append(room) or end, ended(), room)
    assert (end, seen, left.seconds) == (ended(), [room], left_s)
