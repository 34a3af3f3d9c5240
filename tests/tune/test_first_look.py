"""Scripts that never come to a step: each is told in a sentence of its own, soon, and in both languages."""

import subprocess
import time

import pytest

from flatout.base.words import LANGUAGES, Words, catalogue
from flatout.launch.protection import Unprotected
from flatout.launch.trial_process import TrialChild
from flatout.tune.execution.failed_first_look import reason

TRAINED_BY_HAND = """
import torch
w = torch.zeros(3, requires_grad=True)
while True:
    (w.sum() - 1).pow(2).backward()
    with torch.no_grad():
        w -= 0.01 * w.grad
        w.grad = None
"""
ARGUMENT = "import argparse; p = argparse.ArgumentParser(); p.add_argument('--data', required=True); p.parse_args()"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (TRAINED_BY_HAND, "by-hand", "without a torch optimizer"),
        ("print('hello')", "no-torch", "without importing torch"),
        ("name = input('which data? ')", "stdin", "EOFError"),
        (ARGUMENT, "failed", "train.py: error: the following arguments are required: --data"),
    ],
)
def test_why_there_is_nothing_to_try(text, code, words, flatout, script):
    if "import torch" in text:
        pytest.importorskip("torch")
    began = time.monotonic()
    ended = flatout("tune", script(text))
    assert ended.returncode == 1, ended.stderr
    told = ended.stderr.splitlines()[-1]
    assert words in told
    assert told.startswith(catalogue("en")[f"tune-nothing.{code}"][:22])
    assert "Traceback" not in ended.stderr
    assert time.monotonic() - began < 60


class Child:
    """One that has ended, or not."""

    def __init__(self, code, said="", steps=None):
        self.process = subprocess.CompletedProcess([], code)
        self.said = lambda: said
        self.steps = lambda: steps
        self.ran_out_of_memory = lambda: "out of memory" in said


@pytest.mark.parametrize(
    ("child", "ended", "code"),
    [
        (Child(None), "hang", "waits"),
        (Child(0, steps=0), "exit", "no-steps"),
        (Child(1, said="ModuleNotFoundError: No module named 'torch'"), "exit", "torch-missing"),
        (Child(0), "exit", "no-torch"),
        (Child(0, steps=7), "exit", "few-steps"),
        (Child(1), "exit", "failed"),
        (Child(1, "torch.OutOfMemoryError: CUDA out of memory."), "exit", "out-of-memory"),
        (Child(-11, "\n \n"), "exit", "killed"),
        (Child(-64), "exit", "killed"),
    ],
)
def test_every_reason_has_its_sentence(child, ended, code):
    found = reason(child, ended, {}, Unprotected())
    assert found.code == code
    for language in LANGUAGES:
        assert Words(language)(f"tune-nothing.{code}", **found.details, log="trials.log")


def test_steps_are_told_by_the_journals_of_all_processes(tmp_path):
    child = TrialChild.__new__(TrialChild)
    child.folder = tmp_path
    assert child.steps() is None  # nobody imported torch
    (tmp_path / "journal-1.jsonl").write_text('{"kind":"process","pid":1}\n', encoding="ascii")
    assert child.steps() == 0
    windows = "".join(f'{{"kind":"window","steps":{steps}}}\n' for steps in (3, 70, 400))
    (tmp_path / "journal-2.jsonl").write_text(windows + '{"kind":"window","st', encoding="ascii")
    assert child.steps() == 400


def test_long_accumulation_is_no_update_by_hand():
    """There is an optimizer: it may step after many backward passes."""
    torch = pytest.importorskip("torch")
    from types import SimpleNamespace

    from _flatout_agent.modes.trial_mode import SegmentsCourse

    course = SegmentsCourse(torch, "/nowhere")  # would fail if it wrote
    tape = SimpleNamespace(ticks=0, clock=SimpleNamespace(backwards=1000))
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    course._end_without_steps(SimpleNamespace(tape=tape))
    del optimizer
