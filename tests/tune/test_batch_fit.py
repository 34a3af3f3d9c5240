"""The sitting of the largest batch (`tests/gpu/batch_fit.py`): what it says without a machine; whole on an imitated card."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import patient

from conftest import QUIET, ROOT

PATH = ROOT / "tests" / "gpu" / "batch_fit.py"


@pytest.fixture(scope="module")
def sitting():
    spec = importlib.util.spec_from_file_location("batch_fit", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@given(true=st.integers(1, 3000), begin=st.integers(1, 3000))
def test_the_end_is_found_wherever_it_is_begun(sitting, true, begin):
    rounds = []

    def holds(sizes):
        rounds.append(list(sizes))
        return [size <= true for size in sizes]

    found = sitting.largest_that(holds, begin)
    assert found["size"] == true
    assert found["strange"] == []
    assert {true, true + 1, true + 2} <= set(found["asked"]), "the neighbours are asked, not concluded"
    assert len(rounds) <= 9
    assert all(len(asked) <= 8 for asked in rounds)


def test_a_first_answer_that_is_right_costs_few_children(sitting):
    asked = []

    def holds(sizes):
        asked.extend(sizes)
        return [size <= 88 for size in sizes]

    assert sitting.largest_that(holds, 87)["size"] == 88
    assert len(asked) == len(set(asked)) <= 14


def test_a_size_that_happens_not_to_run_is_seen(sitting):
    found = sitting.largest_that(lambda sizes: [size <= 90 and size != 88 for size in sizes], 60)
    assert 88 in found["strange"] or found["size"] == 87


def line(stage, took, **segment):
    return {"segment": {"stage": stage, **segment}, "result": {"took_s": took}}


def record(sitting, **changes):
    lines = [{"plan": {"looked_s": 8.0}}, line("baseline", 2.0), line("batch", 1.5, batch=64), line("batch", 1.0, batch=88),
             line("batch", 9.0, through_epoch=True), line("final", 30.0)]  # fmt: skip
    ours = {"size": 88, "parts": sitting.parts_of(lines)}
    told = {"flatout": ours, "true": {"size": 90, "ran": 93, "seconds": 50.0},
            "lightning": [{"mode": "binsearch", "size": 86, "seconds": 33.0}, None],
            "after": {"asked": 500, "steps": 500, "out_of_memory": False, "retries": 0}}  # fmt: skip
    return {**told, **changes}


def test_what_the_issue_asks_for_is_judged_by_its_figures(sitting):
    assert record(sitting)["flatout"]["parts"] == {
        "start": 8.0, "baseline": 2.0, "probes": 2.5, "proof": 9.0, "rest": 30.0,
    }  # fmt: skip
    found = sitting.verdicts(record(sitting))
    assert found["at_least_0.95"] is True
    assert (found["seconds_until_found"], found["seconds_with_proof"]) == (4.5, 13.5)
    assert (found["quarter_of_lightning_until_found"], found["quarter_of_lightning_with_proof"]) == (True, False)
    assert found["500_steps_without_oom"] is found["no_allocator_retries"] is found["never_more_than_fits"] is True
    worse = sitting.verdicts(
        record(
            sitting,
            true={"size": 100, "ran": 80, "seconds": 1.0},
            lightning=[None],
            after={"asked": 500, "steps": 41, "out_of_memory": True, "retries": 3},
        )
    )
    assert [worse[name] for name in ("at_least_0.95", "never_more_than_fits", "500_steps_without_oom")] == [False] * 3
    assert worse["quarter_of_lightning_until_found"] is None, "no figure, no verdict"
    assert "batch" in sitting.table({**record(sitting), "verdicts": found})


@pytest.mark.thorough
@pytest.mark.alone
def test_the_whole_sitting_on_an_imitated_card(tmp_path):
    """A card that ends at batches of 40: real children, the real command, and 20 further steps."""
    pytest.importorskip("torch")
    out = tmp_path / "record.json"
    command = [
        sys.executable,
        PATH,
        "restoration",
        out,
        "--imitate",
        "40",
        "--steps",
        "20",
        "--modes",
        "",
        "--budget",
        f"{patient(45)}s",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500, env={**os.environ, **QUIET}, check=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(out.read_text(encoding="utf-8"))
    assert (told["true"]["size"], told["true"]["ran"], told["true"]["strange"]) == (40, 40, [])
    assert 16 < told["flatout"]["size"] <= 40
    assert told["flatout"]["proved"]["size"] == told["flatout"]["size"]
    assert told["verdicts"]["500_steps_without_oom"] is True
