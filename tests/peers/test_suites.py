"""The comparison itself, on a planted suite: what is changed by being observed is found, and what is flaky is named."""

import json
import sys

from suites import changed, main, read_outcomes

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
