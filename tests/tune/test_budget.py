"""How long a search and its confirmation may take, and that it says how far it is where there is no terminal."""

import io

import pytest
from imagined import plan

from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.cli import tune
from flatout.cli.tune import PROGRESS_EVERY_S, Screen, seconds_of
from flatout.machine import host
from flatout.report.tune import budget as sentence
from flatout.tune.search.questions_and_answers import Progress
from flatout.tune.search.time_budget import (
    CONFIRM_SHARE,
    LEAST_S,
    MOST_S,
    USUAL_S,
    Costs,
    as_option,
    budget,
    reserve_s,
    room_s,
    to_ask_for,
)


def costs(start_s=3.0, looked_s=None, step_s=0.0):
    return Costs(looked_s=start_s if looked_s is None else looked_s, start_s=start_s, step_s=step_s)


@pytest.mark.parametrize(
    ("steps", "step_s", "length", "seconds", "code"),
    [
        (20_000, 0.15, None, 300.0, "run"),
        (1_000, 0.01, None, LEAST_S, "run"),
        (10**7, 0.1, None, MOST_S - 40.0, "run"),
        (None, 5.0, 600, 300.0, "epoch"),
        (None, 0.01, 600, USUAL_S, "usual"),
        (None, 0.0, 600, USUAL_S, "usual"),
        (20_000, 0.0, None, USUAL_S, "usual"),
    ],
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_it_follows_the_planned_run(steps, step_s, length, seconds, code, language):
    found = budget(None, costs(looked_s=40.0, step_s=step_s), steps, {"loaders": [length] if length else []})
    assert (found.search_s, found.code) == (pytest.approx(seconds), code)
    said = sentence(found, Words(language), "9m")
    assert "--budget" in said
    assert f"{found.search_s:.0f} s" in said or f"{found.search_s / 60:.0f} min" in said
    assert "{" not in said


@pytest.mark.parametrize(("start_s", "confirm_s"), [(1.0, 24.0), (10.0, 96.0), (12.0, 112.0), (60.0, 496.0), (100.0, 510.0)])
def test_confirming_comes_on_top_and_both_are_said(start_s, confirm_s):
    """Seen: starts of 10 s, a search of 90 s with 36 s kept back, and "there was no time to confirm this"."""
    found = budget(None, costs(start_s), None, {})
    assert (found.search_s, found.confirm_s) == (USUAL_S, confirm_s)
    assert found.total_s <= MOST_S
    both = budget(None, costs(10.0), None, {})
    assert sentence(both, Words("en"), "").startswith(
        "Time limit: 90 s for the search and about 96 s for whole runs that confirm the result."
    )
    assert sentence(both, Words("zh"), "").startswith("时间上限：搜索 90 s，另用约 96 s 做完整运行来确认结果。")


@pytest.mark.parametrize("start_s", [0.5, 5.0, 30.0, 100.0, 200.0, 400.0])
@pytest.mark.parametrize("step_s", [0.01, 0.4, 5.0])
@pytest.mark.parametrize("steps", [None, 10**7])
def test_search_and_confirmation_take_ten_minutes_at_most(start_s, step_s, steps):
    found = budget(None, costs(start_s, step_s=step_s), steps, {})
    assert found.search_s >= LEAST_S
    assert found.total_s <= MOST_S
    assert found.confirm_s == 0 or found.confirm_s >= costs(start_s, step_s=step_s).pair_s
    assert found.confirm_s > 0 or start_s >= 200


def test_a_start_that_leaves_no_room_for_runs_is_said():
    found = budget(None, costs(400.0), None, {})
    assert not found.confirm_s
    assert "--budget 43m" in sentence(found, Words("en"), to_ask_for(costs(400.0), found.search_s))


@pytest.mark.parametrize(("looked", "left"), [(1.0, 56.0), (30.0, 27.0), (50.0, 15.0), (500.0, 15.0)])
@pytest.mark.parametrize("start_s", [0.2, 1.0, 30.0])
def test_a_first_look_is_part_of_what_was_asked_for(looked, left, start_s):
    """Seen: however long it took, half of the budget came on top."""
    found = budget(60.0, costs(start_s, looked), 10**6, {})
    assert found.total_s == pytest.approx(left)
    assert found.confirm_s <= CONFIRM_SHARE * left


@pytest.mark.parametrize(
    ("left_s", "start_s", "kept"), [(90, 3, True), (20, 5, False), (30, 2, True), (600, 5, True), (8, 1, False)]
)
def test_what_is_kept_back_of_what_was_asked_for(left_s, start_s, kept):
    found = reserve_s(left_s, costs(start_s))
    assert bool(found) is kept
    assert found <= CONFIRM_SHARE * left_s


def test_slow_steps_need_longer_runs():
    assert costs(3.0, step_s=0.1).pairs_s == costs(3.0).pairs_s
    assert costs(3.0, step_s=1.0).loop_s == 21.0
    assert costs(3.0, step_s=5.0).loop_s == 61.0
    assert costs(3.0, step_s=1.0).pair_s == 2 * 3.0 + 2 * 21.0


def test_a_search_that_took_longer_takes_nothing_from_the_confirmation():
    granted = budget(None, costs(10.0), None, {})
    assert room_s(granted, 500.0, 0.0) == granted.confirm_s
    assert room_s(granted, 30.0, 0.0) == granted.total_s - 30.0


def test_what_is_compiled_has_its_time_on_top_where_nothing_was_asked_for():
    granted = budget(None, costs(10.0), None, {})
    assert room_s(granted, 90.0, 20.0) == granted.confirm_s + 40.0
    assert room_s(granted, 90.0, 10**4) + granted.search_s == MOST_S
    asked = budget(120.0, costs(10.0), None, {})
    assert room_s(asked, asked.search_s, 20.0) == pytest.approx(asked.confirm_s)


@pytest.mark.parametrize("start_s", [0.5, 8.0, 12.0, 90.0])
@pytest.mark.parametrize("search_s", [0.0, 20.0, 300.0])
def test_the_budget_that_is_named_is_enough(start_s, search_s):
    told = to_ask_for(costs(start_s), search_s)
    found = budget(seconds_of(told), costs(start_s), None, {})
    assert found.search_s >= search_s
    assert found.confirm_s >= costs(start_s).pair_s


@pytest.mark.parametrize(("seconds", "said"), [(0.5, "10s"), (31.0, "40s"), (120.0, "120s"), (121.0, "3m"), (600.0, "10m")])
def test_it_is_named_as_it_is_typed(seconds, said):
    assert as_option(seconds) == said


def plan_of(step_s):
    return plan(step_s=step_s, timed_s=0.5, has_loader=False)


@pytest.mark.parametrize(
    ("asked", "start_s", "said"),
    [
        (
            5.0,
            4.0,
            "Starting the script took 4 s of the budget of 5 s, so there is not enough time to compare anything. Use --budget",
        ),
        (30.0, 29.0, "Starting the script took 29 s of the budget of 30 s"),
        (40.0, 8.0, ""),
        (90.0, 3.0, "Time limit: 50 s for the search and about 33 s for whole runs that confirm the result."),
    ],
)
def test_a_budget_that_the_start_uses_up_is_said_with_one_that_does(asked, start_s, said):
    stream = io.StringIO()
    granted = budget(asked, costs(start_s, step_s=0.3), None, {})
    tune._say_budget(granted, costs(start_s, step_s=0.3), plan_of(0.3), asked, Screen(stream, Words("en")))
    assert stream.getvalue().startswith(said)
    assert bool(stream.getvalue()) is bool(said)


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
    assert ("1.9 of 2 CPU cores" in stream.getvalue()) == said


def test_how_many_cores_are_at_work_is_measured():
    busy = host.busy_cores(0.2)
    assert 0.0 <= busy <= host.processor().cores
