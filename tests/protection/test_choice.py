"""Which protection is taken, and what is said where none can be had."""

import os
import subprocess
import sys

import pytest

from conftest import QUIET
from flatout.base.errors import UsageError
from flatout.launch import protection
from flatout.launch.protection import KINDS, Kind, Trying, choose


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
    (tmp_path / "options.py").write_text(
        "def add_to(parser): getattr(parser, 'add_' + 'argument')('--batch-size')", encoding="ascii"
    )
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
