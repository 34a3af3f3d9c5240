"""What holding a trial adds to its start, in seconds of the processor: others may be at work.

`bench/trial_cost.py` measures by the clock as well, and what is read and trained per second.
"""

import os
import sys

import pytest

resource = pytest.importorskip("resource")

from flatout.launch.landlock import Landlock
from flatout.launch.protection import Unprotected
from flatout.launch.python_guard import Guard
from flatout.launch.trial_process import TrialChild

MOST_S = 0.3


def of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def best_start(held, folder):
    times = []
    for number in range(4):
        before = of_children()
        line = held.wrap([sys.executable, "-c", "pass"])
        child = TrialChild(line, {**os.environ, **held.environ}, folder / f"{held.kind}-{number}", **held.job)
        assert child.process.wait(60) == 0, child.said()
        times.append(of_children() - before)
        child.kill()
    return min(times)


@pytest.mark.calm
@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
@pytest.mark.parametrize("kind", [Guard, Landlock])
def test_what_a_start_costs(kind, tmp_path):
    own, project = tmp_path / "own", tmp_path / "project"
    own.mkdir()
    project.mkdir()
    with kind([project], os.environ) as held:
        if not held.ready:
            pytest.skip(f"no {held.kind} here")
        held.share(own)
        assert best_start(held, own) - best_start(Unprotected(), own) < MOST_S
