"""The comparison itself, on a planted suite: what is changed by being observed is found, and what is flaky is named."""

import json
import sys

import pytest
from suites import NAMED, Ran, changed, judged, main, read_outcomes

PLANTED = """
import os, pathlib
def test_same(): pass
def test_sees_us(): assert "FLATOUT_JOB" not in os.environ
def test_sees_records(): assert not list(pathlib.Path(".").glob(".flatout"))
def test_flaky():
    times = pathlib.Path("times"); text = times.read_text() if times.exists() else ""
    times.write_text(text + "x")
    assert len(text) == 0
"""


def test_a_planted_suite(tmp_path, capsys):
    folder, out = tmp_path / "suite", tmp_path / "out"
    folder.mkdir()
    (folder / "test_planted.py").write_text(PLANTED)
    code = main(["--folder", str(folder), "--out", str(out), "--python", sys.executable, "test_planted.py"])
    told = json.loads((out / "compared.json").read_text())
    assert code == 1
    assert told["changed"] == ["test_planted::test_sees_us"]
    assert told["flaky"] == ["test_planted::test_flaky"]
    assert told["tests"] == 4
    assert "CHANGED: test_planted::test_sees_us: passed -> failure" in capsys.readouterr().out


def test_a_test_that_is_missing_is_changed():
    plain = {"a": "passed", "b": "passed"}
    assert changed(plain, {"a": "passed"}, plain) == (["b"], [])
    assert changed(plain, {"a": "passed"}, {"a": "passed", "b": "error"}) == ([], ["b"])


def test_a_suite_that_never_ran_has_no_outcomes(tmp_path):
    assert read_outcomes(tmp_path / "none.xml") == {}


DONE, LATE = Ran({"a": "passed"}, 10.0, 10.0, 0), Ran({}, 1800.0, 10.0, None)


@pytest.mark.parametrize(
    ("runs", "late"),
    [
        ((DONE, DONE, LATE), "plain-again"),
        ((DONE, LATE, DONE), "observed"),
        ((LATE, DONE, DONE), "plain"),
        ((LATE, LATE, LATE), "plain, observed, plain-again"),
    ],
)
def test_a_run_that_was_not_done_in_time_makes_nothing_flaky(runs, late, tmp_path, capsys):
    assert judged(*runs, tmp_path) == 1
    assert capsys.readouterr().out == f"not compared: {late} not done within 1800 s\n"
    assert judged(DONE, DONE, DONE, tmp_path) == 0


def test_a_suite_that_is_asked_for_and_missing_is_a_failure(tmp_path, capsys, monkeypatch):
    """A folder that is not there, or a name that nobody knows, beside one that is as it should be."""
    (tmp_path / "good").mkdir()
    toml = tmp_path / NAMED.name
    toml.write_text('[good]\nfolder = "."\npaths = []\n[away]\nfolder = "."\npaths = []\n', encoding="utf-8")
    monkeypatch.setattr("suites.NAMED", toml)
    monkeypatch.setattr("suites.compare", lambda _: 0)
    command = ["--all", str(tmp_path), "--out", str(tmp_path / "out"), "--only"]
    assert main([*command, "good"]) == 0
    assert main([*command, "good,away"]) == 1
    assert "away: not compared" in capsys.readouterr().out
    assert main([*command, "good,godo"]) == 1
    assert "godo: not compared" in capsys.readouterr().out
    assert main(command[:-1]) == 1
