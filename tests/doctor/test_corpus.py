"""Reports of people, read and judged: does the doctor name the cause that their threads ended in?

The reports themselves belong to their authors and are not part of this repository; where they lie beside it, they are all
judged. Everywhere: what the machines and tools said in some of them, told in our words.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from flatout.doctor import registry, root_cause
from flatout.doctor.paste.reader import read

CORPUS = Path(__file__).resolve().parents[2] / ".." / "shared" / "corpus" / "cases.jsonl"
HEALTHY = "healthy"

HERE = pytest.mark.skipif(not CORPUS.exists(), reason="the corpus of real reports is not here")

TOLD = tomllib.loads(Path(__file__).with_name("reports.toml").read_text(encoding="utf-8"))

TOOL_LINES = {
    "os": "OS: {}",
    "python": "Python version: {}",
    "torch_version": "PyTorch version: {}",
    "torch_cuda": "CUDA used to build PyTorch: {}",
    "driver_version": "Nvidia driver version: {}",
    "cuda_visible_devices": "CUDA_VISIBLE_DEVICES={}",
}


def written_out(case: dict[str, Any]) -> str:
    """The symptom, then what was pasted, or the facts as their tools would have printed them."""
    if case["raw_env"]:
        return f"{case['symptom']}\n{case['raw_env']}"
    facts = case["facts"]
    lines = [case["symptom"]]
    lines += [line.format(facts[key]) for key, line in TOOL_LINES.items() if facts.get(key) is not None]
    lines += [f"GPU {index}: {name}" for index, name in enumerate(facts.get("gpus") or [])]
    lines += [f"{key}: {value}" for key, value in (facts.get("other") or {}).items()]
    return "\n".join(lines)


def expected(case: dict[str, Any]) -> str:
    return HEALTHY if case["category"] == "false_positive" else case["category"].replace("_", "-")


def judged(text: str) -> str:
    result = root_cause.judge(read(text), registry.all_rules())
    assert not result.crashed, result.crashed
    return result.root_cause.name if result.root_cause else HEALTHY


@pytest.mark.parametrize("name", TOLD)
def test_what_machines_and_tools_said(name):
    assert judged(TOLD[name]["text"]) == TOLD[name]["cause"]


@pytest.fixture(scope="module")
def results() -> list[tuple[dict[str, Any], str, str]]:
    cases = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [(case, expected(case), judged(written_out(case))) for case in cases]


def share(results: list[tuple[dict[str, Any], str, str]]) -> float:
    return sum(wanted == got for _, wanted, got in results) / len(results)


@HERE
def test_score(results):
    for case, wanted, got in results:
        print(f"{'  ' if wanted == got else '✗ '}{case['id']:36} {case['confidence']:10} {wanted:28} {got}")
    confirmed = [row for row in results if row[0]["confidence"] == "confirmed"]
    print(f"confirmed {share(confirmed):.0%} of {len(confirmed)}, all {share(results):.0%} of {len(results)}")
    assert share(confirmed) >= 0.9
    assert share(results) >= 0.8


@HERE
def test_no_false_alarm(results):
    assert not [(case["id"], got) for case, wanted, got in results if wanted == HEALTHY and got != HEALTHY]
