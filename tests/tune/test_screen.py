"""What `flatout tune` shows while it searches."""

import io

import pytest

from flatout.base.words import Words
from flatout.cli import tune
from flatout.cli.tune import Screen, seconds_of
from flatout.knobs.model import Numerics
from flatout.tune.search.questions_and_answers import Decision, Progress, Verdict
from flatout.tune.search.time_budget import Costs, budget

NOW = Progress(stage="baseline", trying=["workers"], segments_done=3, segments_left=9, spent_s=2.0, left_s=40.0)


def decision(knob, value, verdict, code, **params):
    return Decision(knob=knob, value=value, verdict=verdict, code=code, numerics=Numerics.EXACT, params=params)


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Gone(io.StringIO):
    """A pipe that nobody reads any more."""

    def isatty(self):
        return True

    def write(self, text):
        raise BrokenPipeError

    def flush(self):
        raise BrokenPipeError


class Ended:
    def __init__(self, decisions):
        self.decisions = decisions


@pytest.fixture
def decisions():
    return [
        decision("compile", "default", Verdict.SKIPPED, "not-chosen"),
        decision("workers", "4", Verdict.KEPT, "faster", gain=71.0, margin=3.0),
    ]


def test_what_was_left_out_as_asked_is_not_said(decisions):
    stream = io.StringIO()
    Screen(stream, Words("en")).watch(NOW, decisions)
    assert stream.getvalue().strip() == "workers 4: speed +71 % (± 3), kept"


def test_the_line_of_progress_is_wiped_before_the_next_is_written(decisions):
    stream = Terminal()
    screen = Screen(stream, Words("en"))
    screen.watch(NOW, [])
    assert stream.getvalue().endswith("about 40 s left")
    screen.say("the end")
    assert stream.getvalue().endswith("\r\x1b[Kthe end\n")


def test_a_reader_that_went_away_ends_nothing(decisions):
    screen = Screen(Gone(), Words("en"))
    screen.watch(NOW, decisions)
    screen.say("a sentence")
    screen.hint("a hint")
    screen.show("something")


def test_what_was_put_off_is_said_at_the_end_and_not_before():
    later = decision("workers", "4", Verdict.SKIPPED, "no-time", needs_s=8.0, left_s=5.0)
    stream = io.StringIO()
    screen = Screen(stream, Words("en"))
    screen.watch(NOW, [later])
    assert stream.getvalue() == ""
    more = decision("tf32", "on", Verdict.SKIPPED, "no-time", needs_s=8.0, left_s=0.0)
    screen.had_no_turn([decision("precision", "bf16", Verdict.KEPT, "faster", gain=71.0, margin=3.0), later, more], "3m")
    assert stream.getvalue() == "Not tried for lack of time: workers 4, tf32. Use --budget 3m to try them.\n"


def test_where_everything_had_its_turn_nothing_is_said_of_it(decisions):
    stream = io.StringIO()
    Screen(stream, Words("zh")).had_no_turn(decisions, "3m")
    assert stream.getvalue() == ""


def test_the_budget_that_is_named_has_time_for_what_was_put_off():
    """Seen: eight lines "it needs 22 s and 0 s are left"."""
    needs = [decision("tf32", "on", Verdict.SKIPPED, "no-time", needs_s=22.0, left_s=0.0)] * 8
    costs = Costs(looked_s=8.0, start_s=8.0)
    granted = budget(40.0, costs, None, {})
    enough = tune._enough_for_all(Ended(needs), granted, costs)
    assert budget(seconds_of(enough), costs, None, {}).search_s >= granted.search_s + 8 * 22.0
