"""Nothing is left behind: no process, no folder, whatever ended the front; and nothing comes through to the user's files."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import gone, wait_until

from flatout.launch import scratch
from flatout.launch.scratch import Scratch, outside, sweep, temporary_inside
from flatout.launch.trial_process import TrialChild

# A front that starts a child with the mark, which starts another one that leaves its group, its session and its parent.
FRONT = """
import os, subprocess, sys, time
from pathlib import Path
from flatout.launch.reaper_client import Keeper
from flatout.launch.scratch import Scratch
from flatout.launch.trial_process import mark_of
one, other = Scratch(sys.argv[1]), Scratch(sys.argv[1])
keeper = Keeper(mark_of(one.path), [one.path, other.path])
(other.path / "layers" / "locked").mkdir(parents=True)
os.chmod(other.path / "layers" / "locked", 0)
daemon = "import os, time\\nif os.fork() == 0:\\n os.setsid()\\n print(os.getpid(), flush=True)\\ntime.sleep(60)"
child = subprocess.Popen([sys.executable, "-S", "-c", daemon], start_new_session=True,
                         env={**os.environ, "FLATOUT_JOB": f"{one.path}/1/job.json"})
keeper.at_work(child.pid)
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="environments of other processes are told by Linux alone")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, pytest.param(signal.SIGSEGV, marks=pytest.mark.thorough)])
def test_a_front_that_is_killed_takes_everything_with_it(how, tmp_path):
    front = subprocess.Popen([sys.executable, "-c", FRONT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    pids = [int(front.stdout.readline()), int(front.stdout.readline())]
    assert not any(gone(pid) for pid in pids)
    assert len(list(tmp_path.iterdir())) == 2
    front.send_signal(how)
    front.wait()
    front.stdout.close()
    wait_until(lambda: all(gone(pid) for pid in pids) and not list(tmp_path.iterdir()))


# Leaves its parent, its session and its environment.
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.execve("/bin/sleep", ["sleep", "60"], {})
    os._exit(0)
os.wait()
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is a gap: `daemons`")
def test_a_daemon_ends_with_the_trial_that_made_it(tmp_path):
    child = TrialChild([sys.executable, "-c", DAEMON], os.environ, tmp_path / "1")
    wait_until(lambda: child.said().strip())
    daemon = int(child.said())
    assert not gone(daemon)
    child.kill()
    wait_until(lambda: gone(daemon))


def test_only_folders_that_nobody_holds_are_swept_up(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(scratch, "SHARED_MEMORY", str(tmp_path))
    held = Scratch(str(tmp_path))
    left = tmp_path / f"{scratch.PREFIX}left"
    (left / "0-work" / "work").mkdir(parents=True)
    os.chmod(left / "0-work" / "work", 0)
    (left / scratch.LOCK).touch()
    os.utime(left / scratch.LOCK, (1, 1))
    os.utime(held.path / scratch.LOCK, (1, 1))
    being_made = tmp_path / f"{scratch.PREFIX}new"
    being_made.mkdir()
    not_yet_held = tmp_path / f"{scratch.PREFIX}newer"
    not_yet_held.mkdir()
    (not_yet_held / scratch.LOCK).touch()
    (tmp_path / "somebody's").mkdir()
    sweep()
    left_alone = [held.path.name, being_made.name, not_yet_held.name, "somebody's"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(left_alone)
    held.remove()
    assert not held.path.exists()


def test_what_killed_children_leave_in_the_temporary_folder_goes_too(tmp_path):
    place = Path(scratch.tempfile.mkdtemp(prefix="t-"))
    told = temporary_inside(place, {"HOME": "/root"})
    assert told["TMPDIR"].startswith(str(place))
    assert Path(told["TMPDIR"]).is_dir()
    scratch.remove(str(place))
    assert not place.exists()
    # On clusters the data may lie there.
    assert temporary_inside(tmp_path, {"TMPDIR": "/scratch/job"}) == {}
    # The name of a socket would be too long.
    assert temporary_inside(Path("/" + "x" * 60), {}) == {}


def test_what_both_sides_must_see_is_not_below_an_overlay(tmp_path):
    temporary = Path(scratch.tempfile.gettempdir()).resolve()
    assert outside([tmp_path / "elsewhere"]) is None
    assert outside([temporary]) == scratch.SHARED_MEMORY
