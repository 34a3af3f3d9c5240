"""The guard is on, or no line of the script is run: it is proved in the interpreter that is to run it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from _flatout_agent import wire
from flatout.base.errors import UsageError
from flatout.base.words import Words
from flatout.launch import environment
from flatout.launch.guard_proof import can_be_guarded, interpreter_options
from flatout.launch.protection import Trying, Unprotected, choose
from flatout.launch.trial_process import TrialChild
from flatout.tune.execution.failed_first_look import reason

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
SPOILS = "open('kept.txt', 'w').write('changed')"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="interpreters are shell scripts here")


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "kept.txt").write_text("kept", encoding="ascii")
    (tmp_path / "train.py").write_text(SPOILS, encoding="ascii")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trying(project, line):
    return Trying(line=line, folders=[project], environ={**os.environ, "FLATOUT_TRIALS": "guard", "HOME": str(project)})


def test_only_python_is_guarded():
    assert can_be_guarded(["/usr/bin/python3", "train.py"])
    assert can_be_guarded(["python", "-m", "package.train"])
    assert not can_be_guarded(["/usr/bin/bash", "train.sh"])


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("train.py -I", []),
        ("-u train.py -E", ["-u"]),
        ("-um train -S", ["-u"]),
        ("-m train -S", []),
        ("-W ignore -sE train.py", ["-W", "ignore", "-sE"]),
        ("-Wignore -X dev - -S", ["-Wignore", "-X", "dev"]),
        ("--check-hash-based-pycs never -B train.py", ["--check-hash-based-pycs", "never", "-B"]),
        ("-uc pass -S", ["-u"]),
        ("-X", ["-X"]),
    ],
)
def test_what_is_the_interpreters_own(words, options):
    assert interpreter_options(words.split()) == options


@pytest.mark.parametrize("options", [["-u"], ["-W", "ignore", "-X", "utf8"], ["-B", "-m"]])
def test_usual_ways_to_start_python_are_accepted(project, options):
    with choose(trying(project, [sys.executable, *options, "train.py"])) as held:
        assert held.kind == "guard"


@pytest.mark.calm
def test_python_by_its_version_is_accepted(project):
    name = project / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    name.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="ascii")
    name.chmod(0o755)
    began = time.monotonic()
    with choose(trying(project, [str(name), "train.py"])) as held:
        assert held.kind == "guard"
    assert time.monotonic() - began < 2.0  # 0.3 s on a machine of its own


@pytest.mark.parametrize("options", [["-S"], ["-sE"], ["-Iu"], ["-W", "ignore", "-E"], ["-V"]])
def test_options_that_keep_it_out_are_refused(project, options):
    with pytest.raises(UsageError), choose(trying(project, [sys.executable, *options, "train.py"])):
        pass
    assert (project / "kept.txt").read_text(encoding="ascii") == "kept"


@pytest.mark.parametrize(
    "body", [f'exec "{sys.executable}" -I "$@"', f'unset PYTHONPATH; exec "{sys.executable}" "$@"', "true"]
)
def test_what_only_looks_like_python_is_refused(project, body):
    """A launcher that is deaf, an interpreter older than the agent, no interpreter at all."""
    name = project / "python3.7"
    name.write_text(f"#!/bin/sh\n{body}\n", encoding="ascii")
    name.chmod(0o755)
    with pytest.raises(UsageError), choose(trying(project, [str(name), "train.py"])):
        pass


def test_nothing_turns_it_off_in_a_trial(project):
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), "FLATOUT": "off", "XDG_CACHE_HOME": str(project / "cache")}
    line = [sys.executable, str(HERE / "trial_under.py"), "guard", "train.py"]
    ended = subprocess.run(line, capture_output=True, text=True, check=True, env=environ)
    assert json.loads(ended.stdout.splitlines()[-1])["status"] == 0
    assert (project / "kept.txt").read_text(encoding="ascii") == "kept"


def job_of(project, **fields):
    return wire.job_text({"wire": wire.WIRE_VERSION, "run_dir": str(project), "spawned": 0.0, **fields})


def begun(project, job, held=True):
    path = project / "job.json"
    if job is not None:
        path.write_bytes(job)
    environ = environment.of_trial(os.environ, path, held)
    return subprocess.run([sys.executable, "train.py"], capture_output=True, text=True, check=False, env=environ)


@pytest.mark.parametrize("broken", ["no job", "no protection", "another version", "no folder", "not to be observed"])
def test_a_trial_whose_agent_cannot_begin_is_not_run(project, broken):
    own = project / "trial"
    own.mkdir()
    guard = {"folder": str(own), "free": [], "network": False, "starts_all": False}
    jobs = {
        "no job": None,
        "no protection": job_of(project),
        "another version": job_of(project, wire=1, write_guard=guard),
        "no folder": job_of(project, write_guard={}),
        "not to be observed": job_of(project, run_dir=None, spawned="?", write_guard=guard),
    }
    ended = begun(project, jobs[broken])
    assert ended.returncode == wire.GAVE_UP
    assert (project / "kept.txt").read_text(encoding="ascii") == "kept"
    assert wire.NOT_STARTED in ended.stderr


def test_it_is_not_called_the_scripts_fault(project):
    child = TrialChild([sys.executable, "train.py"], os.environ, project / "1", write_guard={"folder": None})
    child.process.wait(60)
    with Unprotected() as held:
        code, details = reason(child, "", {}, held)
    child.kill()
    assert code == "not-started"
    assert "KeyError: 'free'" in Words("en")(f"tune-nothing.{code}", **details)


def test_a_run_whose_agent_cannot_begin_is_run(project):
    assert begun(project, None, held=False).returncode == 0
    assert (project / "kept.txt").read_text(encoding="ascii") == "changed"
