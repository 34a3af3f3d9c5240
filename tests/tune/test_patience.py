"""Which children are given up: those that do nothing, and starts that are busy and do not get on."""

import subprocess
import sys
import time

import pytest

from flatout.machine import host
from flatout.tune.execution.child_time_limits import Patience, SignsOfLife


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
        ("kept = []\nwhile True: kept.append(bytes(10000))", True),
        ("while True: open('/proc/self/stat').read()", True),
        ("import sys\nwhile True: print('x' * 1000, file=sys.stderr)", True),
    ],
)
def test_what_gets_on_reads_writes_or_takes_memory(text, gets_on):
    with subprocess.Popen(
        [sys.executable, "-c", f"print(flush=True)\n{text}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        child.stdout.readline()
        time.sleep(0.1)
        before = host.moved(child.pid)
        time.sleep(0.3)
        after = host.moved(child.pid)
        child.kill()
    assert (after != before) is gets_on
