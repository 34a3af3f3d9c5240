"""Scripts that look for us, under `flatout run` and alone: they see the same.

In CI the observers are awake. The thorough ones train for 20 s first, and each case begins with the observers at rest.
"""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from conftest import torch_version

COURSE = Path(__file__).with_name("unseen") / "course.py"
QUICK = [
    "signatures",  # these before what ends a row of steps
    "tables_of_methods",
    "a_class_that_knows_few_functions",
    "a_function_mode",
    "a_dispatch_mode",
    "a_counter_of_flops",
    "a_profilers_table",
    "a_hook_that_saves_and_loads",
    "batches_that_compute_their_values",
    "a_command_line_from_signatures",
    "warnings_name_the_scripts_line",
    "tracebacks",
    "what_lies_in_the_folder",
]
TRACING = ["traced_by_jit", "exported", "compiled_ahead_of_time", "compiled_with_a_loop_without_loader"]


def faults_of(folder):
    lines = [json.loads(line) for journal in folder.glob("*/journal-*.jsonl") for line in journal.read_text().splitlines()]
    assert lines
    return [line for line in lines if line["kind"] == "fault"]


def looked_for(seconds, cases, flatout, plain, tmp_path):
    """What the observers did when each case began."""
    folder = tmp_path / "trained"
    folder.mkdir()
    alone = plain(COURSE, 0.001 if seconds else 0, *cases)
    assert alone.returncode == 0, alone.stderr.decode()
    elsewhere = {"FLATOUT_RECORDS": str(tmp_path / "records"), "STATES": str(tmp_path / "states.json")}
    ours = flatout("run", "-q", sys.executable, COURSE, seconds, *cases, env=elsewhere, cwd=folder)
    assert ours.returncode == 0, ours.stderr
    for one, other in zip(ours.stdout.splitlines(), alone.stdout.splitlines(), strict=True):
        assert json.loads(one) == json.loads(other)
    assert not faults_of(next((tmp_path / "records").rglob("runs")))
    return json.loads((tmp_path / "states.json").read_text())


def test_awake(flatout, plain, tmp_path):
    states = looked_for(0, QUICK, flatout, plain, tmp_path)
    assert not any(state["rests"] or state["glances"] for state in states.values())


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_at_rest_after_twenty_seconds(flatout, plain, tmp_path):
    states = looked_for(20, QUICK, flatout, plain, tmp_path)
    assert all(state["rests"] and state["glances"] for state in states.values()), states


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.skipif(torch_version() < (2, 4), reason="export is young")
@pytest.mark.parametrize("seconds", [0, 20])
def test_what_traces(seconds, flatout, plain, tmp_path):
    """In CI: `test_unseen.py` exports and traces with the observers on, `test_compile.py` compiles."""
    states = looked_for(seconds, TRACING, flatout, plain, tmp_path)
    assert not seconds or all(state["rests"] and (state["glances"] or state["compiled"]) for state in states.values()), states
