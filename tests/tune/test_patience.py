"""Which children are given up: those that do nothing, starts that are busy and do not get on, and what follows the search."""

import os
import subprocess
import sys
import time

import pytest

from conftest import QUIET
from flatout.base.clock import SystemClock
from flatout.base.records import Missing
from flatout.launch.protection import Unprotected
from flatout.machine import host
from flatout.tune.confirmation.runs_in_time import InTime
from flatout.tune.confirmation.whole_run_parts import RunMade
from flatout.tune.execution import child_time_limits
from flatout.tune.execution.child_time_limits import LONGEST_S, Patience, SignsOfLife
from flatout.tune.execution.trial_runner import Trials


class Imagined:
    """A child that works, and gets on until some second."""

    def __init__(self, works=True, until=0.0):
        self.now, self.works, self.until = 0.0, works, until

    def busy_s(self):
        return self.now if self.works else 0.0

    def moved(self):
        return int(10 * min(self.now, self.until))


def given_up_after(child, budget_s, look=True):
    patience = Patience(None)
    patience.keep_to(budget_s)
    life = SignsOfLife(child, patience.idle_s, patience.still_s if look else None, 0.0)
    while child.now < 700.0:
        child.now += 0.05
        if life.have_ended(child.now):
            return child.now
    return None


@pytest.mark.parametrize(
    ("child", "budget_s", "after_s"),
    [
        (Imagined(works=False), 5.0, 5.0),
        (Imagined(works=False), None, 45.0),
        (Imagined(), 5.0, 7.5),
        (Imagined(until=30.0), 5.0, 37.5),
        (Imagined(until=1000.0), 5.0, None),
        (Imagined(), 60.0, 90.0),
        (Imagined(), None, 600.0),
    ],
)
def test_a_start_is_given_up(child, budget_s, after_s):
    assert given_up_after(child, budget_s) == (None if after_s is None else pytest.approx(after_s, abs=1.6))


def test_a_segment_may_compute_for_as_long_as_it_likes():
    assert given_up_after(Imagined(), 5.0, look=False) is None


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is what a process holds")
@pytest.mark.parametrize(
    ("text", "gets_on"),
    [
        ("while True: pass", False),
        ("import time\nwhile True: time.sleep(0.001)", False),
        # Not for ever: whoever kills the test leaves it behind.
        ("import time\nkept = []\nwhile len(kept) < 20000: kept.append(bytes(10000)); time.sleep(0.0005)", True),
        ("while True: open('/proc/self/stat').read()", True),
        ("import sys\nwhile True: print('x' * 1000, file=sys.stderr)", True),
    ],
)
def test_what_gets_on_reads_writes_or_takes_memory(text, gets_on):
    with subprocess.Popen(
        [sys.executable, "-c", f"print(flush=True)\n{text}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        try:
            child.stdout.readline()
            time.sleep(0.1)
            before = host.moved(child.pid)
            time.sleep(0.3)
            after = host.moved(child.pid)
        finally:
            child.kill()
    assert (after != before) is gets_on


@pytest.mark.parametrize(
    ("budget_s", "foreseen_s", "longest_s"), [(5.0, 3.0, 11.0), (1.0, 0.0, 5.0), (60.0, 20.0, 100.0), (None, 3.0, LONGEST_S)]
)
def test_a_training_that_is_compared_may_take_twice_what_was_foreseen_and_the_budget(budget_s, foreseen_s, longest_s):
    patience = Patience(None)
    assert patience.training_s(foreseen_s) == LONGEST_S
    patience.keep_to(budget_s)
    assert patience.training_s(foreseen_s) == longest_s


SPINS = """
import pathlib, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open("begun", "a") as file:
    file.write("x")
while True:
    pass
"""


def test_what_spins_while_losses_are_compared_is_given_up_once(script, tmp_path, monkeypatch):
    """Seen: with `--budget 5s` each of the trainings was waited for ten minutes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(child_time_limits, "LEAST_IDLE_S", 1.0)
    line, clock = [sys.executable, str(script(SPINS))], SystemClock()
    with Trials(line, {**os.environ, **QUIET}, Unprotected(), clock, tmp_path / "log") as trials:
        trials.patience.keep_to(1.0)
        began = clock.monotonic()
        assert [trials.curve({}, 60, seed) for seed in (0, 1000, 2000)] == [None] * 3
        assert clock.monotonic() - began < 20.0
    assert (tmp_path / "begun").read_text() == "x"


class WholeRuns:
    """Each takes so long, or as long as it may."""

    def __init__(self, *takes):
        self.takes, self.clock = list(takes), 0.0

    def run(self, knobs, plain, until, longest_s):
        wall_s = self.takes.pop(0)
        took = min(wall_s, longest_s)
        self.clock += took
        return RunMade(wall_s=took, code=0 if wall_s <= longest_s else None, journals=[])


HANGS = 1e9


@pytest.mark.parametrize(
    ("left_s", "takes", "ended_s", "told"),
    [
        (30.0, [6.0, HANGS], 30.0, "did-not-end"),  # four times the plain run: it hangs
        (30.0, [18.0, HANGS], 30.0, "too-few-steps"),
        (30.0, [HANGS], 30.0, "too-few-steps"),
        (None, [6.0, HANGS], 66.0, "did-not-end"),
        (300.0, [6.0, HANGS], 66.0, "did-not-end"),  # by its own limit
        (30.0, [6.0, 6.0], 12.0, "ended"),
    ],
)
def test_whole_runs_end_a_little_after_the_budget(left_s, takes, ended_s, told):
    machine = WholeRuns(*takes)
    in_time = InTime(machine.run, lambda: machine.clock, left_s)
    last = [in_time.run({"tf32": "on"} if number else {}, {}, {}, 60.0) for number in range(len(takes))][-1]
    assert machine.clock == ended_s
    assert (last.reason if isinstance(last, Missing) else "ended" if last.code == 0 else "did-not-end") == told
