"""`flatout tune` that is stopped: a sentence with the way on, the right exit code, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import marked

from conftest import QUIET
from flatout.cli.tune_stopped import go_on_with

# As a script that takes its time to start, deaf to what it is asked for politely.
SLOW = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)", "below", *sys.argv[1:]], start_new_session=True)
time.sleep(100)
"""


@pytest.mark.parametrize(
    ("typed", "script", "expected"),
    [
        (["train.py"], ["train.py"], "train.py"),
        (["--budget", "5m", "train.py", "--resume", "x"], ["train.py", "--resume", "x"], "--budget 5m train.py --resume x"),
        (["--resume", "old", "--json", "a b.py"], ["a b.py"], "--json 'a b.py'"),
        (["--resume=old", "--no-parity", "-m", "pack"], ["-m", "pack"], "--no-parity -m pack"),
    ],
)
def test_the_way_on_is_what_was_typed_with_the_folder(typed, script, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert go_on_with(typed, script, tmp_path / "runs" / "1") == f"flatout tune --resume runs/1 {expected}"
    assert go_on_with(["t.py"], ["t.py"], Path("/elsewhere/1")) == "flatout tune --resume /elsewhere/1 t.py"


def heeding():
    """In the background of a shell Ctrl-C is ignored, and programs inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(("number", "times", "code"), [(signal.SIGINT, 2, 130), (signal.SIGTERM, 1, 143)])
def test_stopped_before_the_first_measurement(number, times, code, tmp_path):
    mark, temporary, home = f"mark-{os.getpid()}-{time.monotonic_ns()}", tmp_path / "temporary", tmp_path / "home"
    for folder in (temporary, home):
        folder.mkdir()
    (home / "train.py").write_text(SLOW, encoding="ascii")
    front = subprocess.Popen(
        [sys.executable, "-m", "flatout", "tune", "train.py", mark],
        cwd=home,
        env={**os.environ, **QUIET, "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        preexec_fn=heeding,
    )
    end = time.monotonic() + 30
    while time.monotonic() < end and not any(b"below" in words for words in marked(mark).values()):
        time.sleep(0.05)
    for _ in range(times):
        front.send_signal(number)
        time.sleep(0.01)
    told = front.communicate(timeout=30)[1]
    assert front.returncode == code, told
    assert told.splitlines()[-1] == "Interrupted before anything was measured. Nothing was changed."
    assert "Traceback" not in told
    # By the time that it has ended, all is gone.
    assert list(temporary.iterdir()) == []
    assert list((home / ".flatout" / "runs").iterdir()) == []
    assert marked(mark) == {}


LATE = """
import os, signal, sys
from flatout.launch.interruption import Interruption, interruptible
try:
    with interruptible():
        os.kill(os.getpid(), signal.SIGINT)
except Interruption as stop:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    sys.exit(stop.exit_code)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_second_one_in_the_last_moments_changes_no_exit_code():
    ended = subprocess.run([sys.executable, "-c", LATE], capture_output=True, check=False, preexec_fn=heeding)
    assert (ended.returncode, ended.stderr) == (130, b"")


def test_a_signal_before_anybody_holds_the_folder(tmp_path):
    """Between the folder's making and the block that removes it: it goes all the same."""
    text = "import sys\nfrom flatout.launch.scratch import Scratch\nScratch(sys.argv[1])\nraise KeyboardInterrupt"
    ended = subprocess.run([sys.executable, "-c", text, str(tmp_path)], capture_output=True, check=False)
    assert ended.returncode != 0
    assert b"KeyboardInterrupt" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_is_refused_leaves_no_folder(tmp_path):
    """A shell script has no guard inside."""
    (tmp_path / "train.sh").write_text("true", encoding="ascii")
    environ = {**os.environ, **QUIET, "FLATOUT_TRIALS": "guard"}
    command = [sys.executable, "-m", "flatout", "tune", "--python", "/bin/sh", "train.sh"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environ)
    assert ended.returncode == 2
    assert "FLATOUT_TRIALS=guard" in ended.stderr.splitlines()[-1]
    assert list((tmp_path / ".flatout" / "runs").iterdir()) == []
