"""What came of each knob, from the agent's lines to the table and the record: a script leaves the journal itself."""

import json

import pytest

from flatout.base import records
from flatout.base.words import LANGUAGES, Words
from flatout.knobs.model import Came
from flatout.launch.settings import Settings
from flatout.measure import knob_use
from flatout.measure.model import Summary
from flatout.report import run_knobs

PLANT = """
import json, os, sys
job = json.load(open(os.environ["FLATOUT_JOB"]))
with open(os.path.join(job["run_dir"], "journal-99999.jsonl"), "w") as file:
    file.writelines(json.dumps(line) + "\\n" for line in json.loads(sys.argv[1]))
"""

HEAD = {
    "kind": "process",
    "wire": 1,
    "pid": 99999,
    "python": "3.12.3",
    "rank": None,
    "torch": {"version": "2.13.0", "cuda": "12.8", "hip": None, "import_s": 1.0},
}
WINDOW = {"kind": "window", "t": 0, "steps": 60, "samples": 600, "batches": 60, "phases": [10**7] * 12, "warm": None}


def outcome(status, code="", **details):
    return {"status": status, "code": code, "details": details}


OUTCOMES = {
    "kind": "knobs",
    "step": 15,
    "outcomes": {
        "precision": outcome("applied", dtype="bf16", roots=1),
        "compile": outcome("refused", "no-triton"),
        "workers": outcome("applied", "capped", workers=4, wanted=8, limit="processors"),
        "pin_memory": outcome("already", "script-set-it"),
        "persistent_workers": outcome("applied"),
    },
    "numerics": {"precision": "tolerance", "workers": "exact", "persistent_workers": "exact"},
}
PROOFS = {
    "kind": "proofs",
    "step": 47,
    "proofs": {
        "precision": outcome("applied", dtype="bfloat16", operations=["aten.addmm", "aten.mm"], output_cast_back=True),
        "workers": outcome("applied", workers_alive=4, batches=32),
        "persistent_workers": outcome("refused", "no-second-epoch-yet"),
    },
}

FLAGS = ["--mixed-precision", "bf16", "--compile", "--workers", "8", "--pin-memory", "--knob", "persistent_workers=on"]


@pytest.fixture
def planted(flatout, script):
    def run(*lines, flags=FLAGS, before=()):
        ended = flatout(*before, "run", *flags, script(PLANT), json.dumps([HEAD, WINDOW, *lines]))
        assert ended.returncode == 0, ended.stderr
        return ended, {use["name"]: use for use in ended.summary["knobs"]}

    return run


def test_each_knob_has_its_line(planted):
    ended, knobs = planted(OUTCOMES, PROOFS, flags=[*FLAGS, "--knob", "batch_size=64"])
    said = " ".join(ended.stderr.split())
    assert (
        "precision=bf16 applied (aten.addmm, aten.mm ran in bfloat16; results differ by rounding; flatout tune checks" in said
    )
    assert "compile=default not applied: Triton does not work here (Windows: pip install triton-windows, or use WSL2)" in said
    limited = "only 4 of 8 workers fit, limited by the number of CPU cores"
    assert f"workers=8 applied (4 workers loaded 32 batches; {limited}; bit-identical results)" in said
    assert "pin_memory=on the script has it already: the script sets it itself" in said
    assert "persistent_workers=on applied, but no effect was seen: the run had no second epoch" in said
    assert "batch_size=64 not applied: flatout cannot set the batch size from outside" in said
    assert {name: use["came"] for name, use in knobs.items()} == {
        "precision": "applied",
        "compile": "refused",
        "workers": "applied",
        "pin_memory": "already",
        "persistent_workers": "unproved",
        "batch_size": "refused",
    }
    assert knobs["precision"]["source"] == "flag"
    assert knobs["precision"]["numerics"] == "tolerance"
    assert knobs["workers"]["details"]["workers_alive"] == 4


def test_taken_back_in_chinese(planted):
    back = {"kind": "taken-back", "step": 47, "knobs": ["precision", "workers"], "code": "slower"}
    details = {"ratio": 0.83, "before": 1200.0, "after": 996.0}
    ended, knobs = planted(OUTCOMES, PROOFS, {**back, "details": details}, before=("--lang", "zh"))
    said = "".join(ended.stderr.split())  # however the line is broken
    assert "运行中已撤销：使用配置文件的设置时" in said
    assert "使用后996）" in said
    assert ended.stderr.count("已撤销") == 1  # both were taken back together
    assert (knobs["precision"]["came"], knobs["precision"]["code"]) == ("taken-back", "slower")
    assert knobs["persistent_workers"]["came"] == "unproved"


def test_a_proof_without_effect_is_not_applied(planted):
    proofs = {
        "kind": "proofs",
        "step": 47,
        "proofs": {"precision": outcome("refused", "no-operation-in-low-precision", calls=7)},
    }
    ended, knobs = planted(OUTCOMES, proofs)
    assert knobs["precision"]["came"] == "refused"
    assert "not applied: no operation used the lower precision in 7 calls" in ended.stderr


def test_a_run_that_ended_before(planted):
    ended, knobs = planted(flags=["--workers", "2"])
    assert (knobs["workers"]["came"], knobs["workers"]["code"]) == ("refused", "ended-before")
    assert "not applied: the run ended before it could be applied" in ended.stderr


def test_without_knobs_nothing_is_said(planted):
    ended, knobs = planted(OUTCOMES, flags=[])
    assert knobs == {}
    assert "Knobs" not in ended.stderr


def test_an_old_torch_is_named():
    settings = Settings(values={"compile": "default"}, sources={"compile": "profile"})
    line = {"kind": "knobs", "step": 0, "outcomes": {"compile": outcome("refused", "torch-too-old", version="2.1.2")}}
    (use,) = knob_use.uses(settings, [[line]])
    assert use.source == "profile"
    assert run_knobs.sentence(use, Words("en")) == "not applied: torch 2.1.2 is older than 2.4, which it needs"


def test_put_on_again_after_it_was_taken_back():
    settings = Settings(values={"tf32": "on"}, sources={"tf32": "flag"})
    on = {"kind": "knobs", "outcomes": {"tf32": outcome("applied", api="allow_tf32")}, "numerics": {}}
    back = {"kind": "taken-back", "knobs": ["tf32"], "code": "raised", "details": {"error": "RuntimeError: no"}}
    assert knob_use.uses(settings, [[on, back]])[0].came is Came.TAKEN_BACK
    assert knob_use.uses(settings, [[on, back, on]])[0].came is Came.UNPROVED


def test_several_processes_speak_once():
    settings = Settings(values={"tf32": "on"}, sources={"tf32": "flag"})
    on = {"kind": "knobs", "outcomes": {"tf32": outcome("applied", api="allow_tf32")}, "numerics": {}}
    proof = {"kind": "proofs", "proofs": {"tf32": outcome("applied", api="allow_tf32")}}
    (use,) = knob_use.uses(settings, [[], [on], [on, proof]])
    assert use.came is Came.APPLIED


@pytest.mark.parametrize("language", LANGUAGES)
def test_details_that_are_missing_or_odd_break_nothing(language):
    settings = Settings(values={"workers": "4", "compile": "default"}, sources={})
    lines = [{"kind": "knobs", "outcomes": {"workers": {"status": "applied"}, "compile": {"status": "refused", "details": 3}}}]
    lines.append({"kind": "proofs", "proofs": {"workers": {"status": "applied", "details": {"batches": None}}}})
    for use in knob_use.uses(settings, [lines]):
        assert run_knobs.sentence(use, Words(language))


def test_a_summary_of_an_older_flatout_is_read(planted):
    ended, _ = planted(OUTCOMES)
    old = ended.summary
    del old["knobs"]
    assert records.decode(json.dumps(old), Summary).knobs == []
