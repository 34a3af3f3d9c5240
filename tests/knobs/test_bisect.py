"""`flatout run --bisect`: the guilty knob is found by running the script again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.launch import bisect
from flatout.launch.bisect import smallest_failing
from flatout.launch.run import Finished, Wanted
from flatout.launch.settings import Settings

NAMES = [f"knob{number}" for number in range(15)]


@given(st.sets(st.sampled_from(NAMES), min_size=1, max_size=4), st.permutations(NAMES))
def test_a_smallest_failing_part_is_found(guilty, names):
    asked = []

    def fails(knobs):
        asked.append(frozenset(knobs))
        return guilty <= knobs.keys()

    assert smallest_failing(dict.fromkeys(names, "on"), fails).keys() == guilty
    assert frozenset() not in asked
    assert len(asked) <= 120


def test_one_guilty_knob_takes_a_few_runs():
    asked = []

    def fails(knobs):
        asked.append(frozenset(knobs))
        return "knob9" in knobs

    smallest_failing(dict.fromkeys(NAMES, "on"), fails)
    assert len(set(asked)) <= 8


# Fails as a knob that is put on would make it fail; which one is told by the environment.
FRAGILE = """
import json, os, sys
job = json.load(open(os.environ["FLATOUT_JOB"]))
guilty = json.loads(os.environ["GUILTY"])
print("knobs", sorted(job.get("knobs") or {}), flush=True)
if guilty is None or guilty and set(guilty) <= set(job.get("knobs") or {}):
    sys.exit(3)
"""

FLAGS = ["--compile", "--workers", "4", "--pin-memory", "--knob", "tf32=on", "--knob", "persistent_workers=on"]


@pytest.mark.parametrize(
    ("guilty", "code", "sentence"),
    [
        (["tf32"], 3, "the script fails with tf32=on and works without ("),
        (["workers", "persistent_workers"], 3, "the script fails with workers=4, persistent_workers=on and works without ("),
        (None, 3, "the script also fails without any knob, so no knob is the cause (1 run; its output is in "),
        ([], 0, "the script did not fail, so there is no failure to look for."),
    ],
)
def test_the_guilty_one_is_named(guilty, code, sentence, flatout, script):
    ended = flatout("run", "-q", "--bisect", *FLAGS, script(FRAGILE), env={"GUILTY": json.dumps(guilty)})
    assert ended.returncode == code
    assert ended.stderr.splitlines()[-1].startswith(f"flatout: {sentence}")
    assert ended.stdout.count(b"knobs") == 1  # the output of the further runs goes to files
    places = sorted((ended.run_folder / "bisect").glob("*/output.txt"))
    assert bool(places) == (code != 0)
    if places:
        assert places[0].read_text() == "knobs []\n"


def test_a_run_that_the_user_ended_is_not_run_again(flatout, script):
    path = script("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    ended = flatout("run", "-q", "--bisect", "--workers", "2", path)
    said = ended.stderr.splitlines()[-1]
    assert said.startswith(
        "flatout: the run was ended by Ctrl-C or another request to stop, so flatout does not look for a knob"
    )


def test_what_hangs_is_ended_and_counts_as_working(script, monkeypatch):
    """The plain run trains on for hours: it has outlived the failure, and is ended with its children."""
    monkeypatch.setattr(bisect, "AT_LEAST_S", 2.0)
    path = script(
        "import json, os, subprocess, sys, time\n"
        "job = json.load(open(os.environ['FLATOUT_JOB']))\n"
        "if 'tf32' in (job.get('knobs') or {}): sys.exit(1)\n"
        "print(subprocess.Popen(['sleep', '60']).pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    place = path.parent / "run"
    place.mkdir()
    settings = Settings(values={"tf32": "on", "workers": "2"}, sources={"tf32": "flag", "workers": "flag"})
    finished = Finished(
        run_id="x",
        folder=str(place),
        command=[sys.executable, str(path)],
        started=0.0,
        wall_s=0.1,
        returncode=1,
        journals=[],
    )
    told = []
    found = bisect.search(finished, Wanted(settings=settings), os.environ, told.append)
    assert (found.verdict, found.knobs, told) == ("guilty", {"tf32": "on"}, [1, 2, 3])
    sleeper = int((place / "bisect" / "01" / "output.txt").read_text())
    status = Path(f"/proc/{sleeper}/stat")
    assert not status.exists() or status.read_text().split()[2] == "Z"


def test_a_signal_ends_the_run_under_way_too(script, tmp_path):
    path = script(
        "import json, os, sys, time\n"
        "job = json.load(open(os.environ['FLATOUT_JOB']))\n"
        "if job.get('knobs'): sys.exit(1)\n"
        "open('pid', 'w').write(str(os.getpid()))\n"
        "time.sleep(120)\n"
    )
    command = [sys.executable, "-m", "flatout", "run", "-q", "--bisect", "--workers", "2", str(path)]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        noted = tmp_path / "pid"
        while not (noted.exists() and noted.read_text()):
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 128 + signal.SIGTERM
    assert not Path(f"/proc/{noted.read_text()}").exists()
