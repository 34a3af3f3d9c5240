"""How long a search may take, and that it says how far it is where there is no terminal."""

import io

import pytest

from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.cli import tune
from flatout.cli.tune import PROGRESS_EVERY_S, Screen
from flatout.machine import host
from flatout.report.tune import budget as sentence
from flatout.tune.budget import LEAST_S, MOST_S, USUAL_S, budget
from flatout.tune.model import Progress


@pytest.mark.parametrize(
    ("steps", "step_s", "length", "seconds", "code"),
    [
        (20_000, 0.15, None, 300.0, "run"),
        (1_000, 0.01, None, LEAST_S, "run"),
        (10**7, 0.1, None, MOST_S, "run"),
        (None, 5.0, 600, 300.0, "epoch"),
        (None, 0.01, 600, USUAL_S, "usual"),
        (None, None, 600, USUAL_S, "usual"),
        (20_000, None, None, USUAL_S, "usual"),
    ],
)
def test_it_follows_the_planned_run(steps, step_s, length, seconds, code):
    ready = {"step_s": step_s, "loaders": [length] if length else []}
    found = budget(None, 40.0, steps, ready)
    assert (found.seconds, found.code) == (pytest.approx(seconds), code)
    assert "--budget" in sentence(found, Words("en"))
    assert "--budget" in sentence(found, Words("zh"))


@pytest.mark.parametrize(("looked", "left"), [(1.0, 56.0), (30.0, 27.0), (50.0, 15.0), (500.0, 15.0)])
def test_a_first_look_is_part_of_what_was_asked_for(looked, left):
    """Seen: however long it took, half of the budget came on top."""
    assert budget(60.0, looked, 10**6, {"step_s": 1.0}).seconds == left


def test_progress_is_told_in_lines_where_there_is_no_terminal():
    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

    stream = io.StringIO()
    screen, now = Screen(stream, Words("en")), Progress(
        stage="compute", trying=["tf32"], segments_done=3, segments_left=9, spent_s=2.0, left_s=40.0
    )  # fmt: skip
    screen._clock, screen._progressed = Clock(), 0.0
    told = []
    for second in range(35):
        Clock.now = float(second)
        screen.watch(now, [])
        told.append(stream.getvalue().count("about 40 s left"))
    assert told[int(PROGRESS_EVERY_S) - 1] == 0
    assert told[-1] == 3


@pytest.mark.parametrize(("busy", "said"), [(1.9, True), (0.1, False), (Missing("not-reported"), False)])
def test_a_machine_that_others_keep_busy_is_said_at_the_start(busy, said, monkeypatch):
    """Seen: twelve times "unknown", and nothing of the other training that ran."""
    monkeypatch.setattr(host, "busy_cores", lambda seconds: busy)
    monkeypatch.setattr(tune, "_cores", lambda: 2.0)
    stream = io.StringIO()
    tune._say_load(Screen(stream, Words("en")))
    assert ("1.9 of 2 cores" in stream.getvalue()) == said


def test_how_many_cores_are_at_work_is_measured():
    busy = host.busy_cores(0.2)
    assert 0.0 <= busy <= host.processor().cores
