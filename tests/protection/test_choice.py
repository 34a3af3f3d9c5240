"""Which protection is taken, and what is said where none can be had."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import QUIET, landlock_version
from flatout.base.errors import UsageError
from flatout.base.words import LANGUAGES, Words
from flatout.cli import batch_flags
from flatout.cli.protected import sentences
from flatout.launch import protection
from flatout.launch.protection import KINDS, Kind, Trying, choose
from flatout.launch.python_guard import Guard
from flatout.tune.batch.command_line import RateRule
from flatout.tune.search.questions_and_answers import BatchGoal

LANDLOCK = pytest.mark.skipif(landlock_version() < 2, reason="no Landlock here")


def trying(tmp_path, wanted="", line=(sys.executable, "train.py")):
    return Trying(line=list(line), folders=[tmp_path], environ={**os.environ, "FLATOUT_TRIALS": wanted})


def test_the_guard_where_there_is_no_overlay(tmp_path, monkeypatch):
    monkeypatch.setattr(protection, "KINDS", {Kind.OVERLAY: lambda _: None, Kind.GUARD: KINDS[Kind.GUARD]})
    with choose(trying(tmp_path)) as held:
        assert held.kind == Kind.GUARD
    with pytest.raises(UsageError, match="--no-sandbox"), choose(trying(tmp_path, line=("/bin/sh", "train.sh"))):
        pass


def test_the_one_that_is_asked_for_or_none(tmp_path):
    with choose(trying(tmp_path, "guard")) as held:
        assert held.kind == Kind.GUARD
    with pytest.raises(UsageError, match="overlay, landlock or guard"), choose(trying(tmp_path, "wall")):
        pass
    with pytest.raises(UsageError, match="FLATOUT_TRIALS=guard"), choose(trying(tmp_path, "guard", ("/bin/sh", "train.sh"))):
        pass


@pytest.mark.parametrize("language", LANGUAGES)
def test_windows_has_sentences_of_its_own(tmp_path, monkeypatch, language):
    monkeypatch.setattr(sys, "platform", "win32")
    held = Guard([tmp_path], {})
    held.above = [tmp_path]
    assert held.job["network_guard"]["network"] is False
    said = sentences(held, Words(language), allow_network=False)
    assert "Windows" in said[0]
    assert "guard-new-files" in held.gaps
    assert not any("are redirected" in line for line in said)


OPTIONS = "def add_to(parser): getattr(parser, 'add_' + 'argument')('--batch-size')"

# Looks like a script that takes a command line, and begins at once.
HASTY = """
import argparse, pathlib, sys
pathlib.Path("results.csv").write_text("gone")
parser = argparse.ArgumentParser()
__import__("options").add_to(parser)
parser.parse_args()
"""


def test_a_script_that_is_asked_for_its_help_overwrites_nothing(tmp_path):
    (tmp_path / "train.py").write_text(HASTY, encoding="ascii")
    (tmp_path / "options.py").write_text(OPTIONS, encoding="ascii")
    (tmp_path / "results.csv").write_text("mine", encoding="ascii")
    command = [sys.executable, "-m", "flatout", "run", "--batch-size", "8", "--json", "train.py", "--other"]
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **QUIET, "FLATOUT_TRIALS": "guard"},
    )
    assert ended.returncode == 2, ended.stderr  # no argument found: the script was not even started
    assert (tmp_path / "results.csv").read_text(encoding="ascii") == "mine"


def test_tune_asks_for_help_under_the_guard(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(HASTY, encoding="ascii")
    (tmp_path / "options.py").write_text(OPTIONS, encoding="ascii")
    (tmp_path / "results.csv").write_text("mine", encoding="ascii")
    wish = batch_flags.Wanted(goal=BatchGoal.FIT, rule=RateRule.KEEP, batch_arg=None, rate_arg=None)
    line = [sys.executable, str(tmp_path / "train.py")]
    with choose(trying(tmp_path, "guard", line)) as held:
        batch_flags.look_for_arguments(wish, line, held, os.environ)
    assert (wish.batch.flag, wish.batch.source) == ("--batch-size", "help")
    assert (tmp_path / "results.csv").read_text(encoding="ascii") == "mine"


@LANDLOCK
def test_what_is_changed_past_landlock_by_the_help_ends_the_command(tmp_path):
    (tmp_path / "train.py").write_text(
        "import subprocess\nsubprocess.run(['/bin/sh', '-c', 'chmod 600 results.csv'])\n" + HASTY, encoding="ascii"
    )
    (tmp_path / "options.py").write_text(OPTIONS, encoding="ascii")
    (tmp_path / "results.csv").write_text("mine", encoding="ascii")
    command = [sys.executable, "-m", "flatout", "run", "--batch-size", "8", "train.py"]
    environ = {**os.environ, **QUIET, "FLATOUT_TRIALS": "landlock", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environ)
    assert "changes to permissions, owner, times" in ended.stderr  # before it was started
    assert f"{tmp_path / 'results.csv'} was changed while the script printed its --help" in ended.stderr
    assert ended.returncode == 1
    assert (tmp_path / "results.csv").read_text(encoding="ascii") == "mine"


# Spoils what it can where it is asked for its help: as Python does, past what is led aside, and through another program.
SPOILING = """
import argparse, contextlib, os, socket, subprocess, sys
def attempt(call, *words, **more):
    with contextlib.suppress(OSError):
        call(*words, **more)
if "--help" in sys.argv:
    kept, shared, udp, path = sys.argv[1:5]
    attempt(lambda: open(kept, "w").write("gone"))
    attempt(os.chmod, kept, 0o600)
    attempt(os.utime, kept, (1, 1))
    attempt(os.setxattr, kept, "user.x", b"x")
    attempt(os.remove, shared)
    attempt(subprocess.run, ["/bin/sh", "-c", 'echo gone > "$0"', kept])
    attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", int(udp))))
    attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", path))
parser = argparse.ArgumentParser()
__import__("options").add_to(parser)
for name in ("kept", "shared", "udp", "path"):
    parser.add_argument(name)
print("got", parser.parse_args().batch_size)
"""


@pytest.mark.parametrize("kind", ["overlay", pytest.param("landlock", marks=LANDLOCK)])
def test_a_script_that_prints_its_help_changes_nothing(tmp_path, kind):
    here = tmp_path / "project"
    here.mkdir()
    kept, shared = tmp_path / "kept.csv", Path(f"/dev/shm/flatout-test-{os.getpid()}")
    (here / "train.py").write_text(SPOILING, encoding="ascii")
    (here / "options.py").write_text(
        "def add_to(parser): getattr(parser, 'add_' + 'argument')('--batch-size')", encoding="ascii"
    )
    for path in (kept, shared):
        path.write_text("mine", encoding="ascii")
    kept.chmod(0o640)
    os.utime(kept, (2, 2))
    environ = {**os.environ, **QUIET, "FLATOUT_TRIALS": kind, "XDG_CACHE_HOME": str(tmp_path / "cache"), "FLATOUT": ""}
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as messages,
    ):
        datagrams.bind(("127.0.0.1", 0))
        messages.bind(str(tmp_path / "socket"))
        words = [str(kept), str(shared), str(datagrams.getsockname()[1]), str(tmp_path / "socket")]
        command = [sys.executable, "-m", "flatout", "run", "--batch-size", "8", "--json", "train.py", *words]
        try:
            ended = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False, env=environ)
            assert shared.read_text(encoding="ascii") == "mine"
        finally:
            shared.unlink(missing_ok=True)
        for opened in (datagrams, messages):
            opened.setblocking(False)
            with pytest.raises(BlockingIOError):
                opened.recv(10)
    if kind == "overlay" and f"FLATOUT_TRIALS={kind}: this system does not give it" in ended.stderr:
        pytest.skip("no overlays here")
    assert "got 8" in ended.stdout, ended.stderr
    told = kept.stat()
    assert (kept.read_text(encoding="ascii"), told.st_mode & 0o777, told.st_mtime, os.listxattr(kept)) == ("mine", 0o640, 2, [])
    first = ended.stderr.splitlines()
    assert "starts the script once with --help" in first[0]
    assert ("Not blocked by Landlock" in ended.stderr) is (kind == "landlock")
