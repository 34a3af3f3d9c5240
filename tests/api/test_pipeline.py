"""The training entry that the documents show, and the functional test of the GPU that it calls."""

from __future__ import annotations

import importlib.util
import json

import pytest

torch = pytest.importorskip("torch")

from conftest import EXAMPLES
from flatout.api import gpu_check
from flatout.api.gpu_check import check_gpu

PIPELINE = EXAMPLES / "behavior_pipeline.py"
SMALL = ("--full-pipeline", "--small", "--train-size", "192", "--epochs", "1")


@pytest.fixture
def pipeline(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLATOUT_LANG", "en")
    found = importlib.util.spec_from_file_location("behavior_pipeline", PIPELINE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_the_whole_command_line_of_the_documents(plain, tmp_path):
    """As a process of its own, on a machine without a GPU: it trains on the processor and says why."""
    config = tmp_path / "gpu.json"
    config.write_text(json.dumps({"use_gpu": True, "device_id": 0, "use_amp": False, "batch_size": 32}))
    ended = plain(
        PIPELINE, *SMALL, "--mixed-precision", "--gpu-id", "0", "--batch-size", "64", "--gpu-memory-fraction", "0.8",
        "--gpu-config", config,
    )  # fmt: skip
    said = ended.stdout.decode()
    assert ended.returncode == 0, ended.stderr.decode()
    assert "device: CPU: " in said
    assert "epoch 0 accuracy" in said
    assert "Trained: 3 steps, 192 samples" in said  # 64 of the command line, not 32 of the file
    assert "samples/s" in said
    assert (tmp_path / "plain" / "behavior_out" / "best.pt").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_the_test_says_what_still_works(pipeline, capsys):
    assert pipeline.main(["--test-gpu"]) == 1
    said = capsys.readouterr().out
    assert "torch can use no GPU here" in said
    assert "[ok] Basic operations: 5 operations" in said
    assert "[ok] Data loading" in said
    assert "FAILED" not in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((*SMALL, "--gpu-memory-fraction", "80"), "gpu_memory_fraction"),
        ((*SMALL, "--batch-size", "0"), "batch_size"),
        ((*SMALL, "--gpu-config", "nowhere.json"), "nowhere.json"),
    ],
)
def test_one_sentence_for_what_cannot_be_meant(pipeline, capsys, words, says):
    assert pipeline.main(list(words)) != 0
    assert says in capsys.readouterr().err


def test_one_of_the_two_is_wanted(pipeline, capsys):
    with pytest.raises(SystemExit) as ended:
        pipeline.main(["--batch-size", "8"])
    assert ended.value.code == 2


def test_a_wrong_result_is_found(monkeypatch):
    """Planted: a softmax that is a little wrong in float32, as a broken card or driver makes it."""
    plain = torch.softmax
    monkeypatch.setattr(torch, "softmax", lambda x, dim: plain(x, dim) * (1.02 if x.dtype == torch.float32 else 1.0))
    answer = gpu_check._operations(torch, torch.device("cpu"))
    assert answer[:2] == ("failed", "wrong")
    assert answer[2]["what"] == "softmax"


def test_a_result_that_is_no_number_is_found(monkeypatch):
    monkeypatch.setattr(torch, "softmax", lambda x, dim: x * float("nan"))
    assert gpu_check._operations(torch, torch.device("cpu"))[:2] == ("failed", "wrong")


def test_a_check_that_breaks_is_its_own_result(monkeypatch):
    monkeypatch.setattr(gpu_check, "_loading", lambda *_: 1 / 0)
    monkeypatch.setattr(gpu_check, "_operations", lambda *_: ("ok", "right", {"count": 5, "error": "0"}))
    for language in ("en", "zh"):
        report = check_gpu(language=language, compile_too=False)
        told = {check.name: check for check in report.checks}
        assert told["loading"].status == "failed"
        assert "ZeroDivisionError" in told["loading"].sentence
        assert all("gpu-check." not in check.sentence for check in report.checks)
    assert not report.passed
