"""The figures of the bench of public scripts, from runs that were made up."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "wild"))
from table import promised_by, rows_of, table


def run(kind, seconds, code=0, script="mnist", **more):
    return {"script": script, "kind": kind, "seconds": seconds, "code": code, **more}


TUNE = {"profile": "flatout.toml", "whole_run": {"speedup": 2.0}, "speedup": 3.0}
RUNS = [
    run("plain", 40.0),
    run("tune", 90.0, tune=TUNE),
    run("tuned", 20.0, unexplained=0.01),
    run("plain", 42.0),
    run("tuned", 22.0, unexplained=0.02),
    run("plain", 44.0),
    run("tuned", 21.0),
    run("observed", 43.0),
    run("hand: compile", 14.0),
    run("hand: broken", 1.0, code=1),
]


def test_delivered_beside_promised():
    (row,) = rows_of(RUNS)
    assert (row.promised, row.delivered, row.kept) == (2.0, 2.0, 1.0)
    low, high = row.interval()
    assert 40 / 22 <= low < 2.0 < high <= 44 / 20
    assert row.observed == pytest.approx(43 / 42)
    assert row.unexplained == 0.02
    assert row.by_hand == {"compile": 3.0}
    assert row.failed == 0


def test_a_search_that_kept_nothing_promises_nothing():
    told = {"profile": None, "whole_run": {"speedup": 1.04, "code": "not-faster"}}
    assert promised_by(told) == promised_by({}) == 1.0


def test_all_together():
    slower = [run("plain", 10.0, script="gan"), run("plain", 10.0, script="gan")]
    slower += [run("tuned", 12.5, script="gan"), run("tuned", 12.5, script="gan"), run("tuned", 3.0, code=1, script="gan")]
    told = table([*RUNS, *slower])
    assert "Median of delivered ÷ promised: 0.900 of 2 scripts." in told
    assert "on the 2 public scripts: 1.26." in told
    assert "Slower than plain beyond doubt: gan. Failed under flatout: gan." in told


def test_an_own_example_is_no_public_script():
    own = [{**each, "script": "gpt"} for each in RUNS]
    assert "public" not in table(own)
