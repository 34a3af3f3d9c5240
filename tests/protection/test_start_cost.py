"""What holding a trial adds to its start, by the clock: a start that waits for something takes as long as one that computes.

`bench/trial_cost.py` also measures what is read and trained per second.
"""

import os
import sys
import time

import pytest

from conftest import landlock_version
from flatout.launch.landlock import Landlock
from flatout.launch.protection import Unprotected
from flatout.launch.python_guard import Guard
from flatout.launch.trial_process import TrialChild

MOST_S = 0.3
LANDLOCK = pytest.mark.skipif(landlock_version() < 2, reason="no Landlock here")


def best_start(held, folder):
    times = []
    for number in range(4):
        began = time.monotonic()
        line = held.wrap([sys.executable, "-c", "pass"])
        child = TrialChild(line, {**os.environ, **held.environ}, folder / f"{held.kind}-{number}", **held.job)
        assert child.process.wait(60) == 0, child.said()
        times.append(time.monotonic() - began)
        child.kill()
    return min(times)


@pytest.mark.alone
@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
@pytest.mark.parametrize("kind", [Guard, pytest.param(Landlock, marks=LANDLOCK)])
def test_what_a_start_costs(kind, tmp_path):
    own, project = tmp_path / "own", tmp_path / "project"
    own.mkdir()
    project.mkdir()
    with kind([project], os.environ) as held:
        assert held.ready
        held.share(own)
        assert best_start(held, own) - best_start(Unprotected(), own) < MOST_S
