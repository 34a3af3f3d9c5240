"""Training scripts as people write them: under flatout nothing changes, and what is counted is true.

Each script of `styles/` runs plain and under `flatout run`, side by side, in folders of their own. Everything that it
prints and every file that it writes must be the same, byte for byte: checkpoints hold the weights, and most of them the
state of the random generators.
"""

import importlib.util
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

torch = pytest.importorskip("torch")

from forks import WHOLE

from conftest import QUIET, Ended, torch_version

STYLES = Path(__file__).with_name("styles")
MARK = "STYLE_OF_TRAINING"  # in the environment of every process of a run: finds those that outlive it


@dataclass(frozen=True)
class Style:
    """A script, how it is started, and what is true of it."""

    command: str  # of styles/, or an option and what follows it
    steps: int
    samples: int | None  # None: no loader, so nobody knows
    notes: tuple[str, ...] = ()
    trained: int = 1  # processes that took steps
    journals: int = 1  # files: a process that imported torch and took no step leaves one too
    returncode: int = 0
    needs: str = "torch"
    torch: tuple[int, int] = (2, 0)  # the oldest that has what the script itself uses, and does the same twice


CASES = {
    "trainer-class": Style("trainer_class.py", 24, 180),
    "timm-like": Style("timm_like.py", 15, 120),
    "amp-with-skipped-steps": Style("amp_scaler.py", 8, 40, torch=(2, 3)),
    "compiled-model": Style("compiled.py", 16, 60, torch=(2, 1)),
    "scripted-model": Style("scripted.py", 8, 32),
    "accumulation": Style("accumulation.py", 6, 84),
    "gan": Style("gan.py 1", 20, 60),
    "gan-five-critics": Style("gan.py 5", 4, 60),
    "wgan-gp": Style("wgan_gp.py", 4, 48),
    "several-calls-in-data-parallel": Style("several_calls.py", 8, 48),
    "l-bfgs": Style("lbfgs.py", 4, 40),
    "sgd-by-hand": Style("by_hand.py", 12, 48, ("clocked-by-backward",)),
    "memmap": Style("memmap.py", 12, 96, ("samples-by-inputs",)),
    "iterable": Style("iterable.py", 23, 88),
    "samplers-and-collate": Style("samplers.py", 12, 50),
    "loader-subclasses": Style("loader_subclass.py", 40, 172),
    "evaluates-inside": Style("evaluates_inside.py", 12, 48),
    "module": Style("-m pkg.train --epochs 2", 12, 48),
    "workers": Style("workers.py", 18, 72),
    "own-processes": Style("own_processes.py", 16, 64),
    "in-a-forked-child": Style("in_a_child.py fork", 14, 56, journals=2),
    "in-a-forkserver-child": Style("in_a_child.py forkserver", 14, 56, journals=2),
    "in-a-spawned-child": Style("in_a_child.py torch", 14, 56, journals=2),
    "in-a-bare-fork": Style("in_a_child.py os.fork", 14, 56, journals=2),
    "in-parent-and-child": Style("child_after_training.py", 9, 48, trained=2, journals=2),
    "reentrant-checkpointing": Style("checkpointing.py", 8, 32),
    "own-optimizers": Style("own_optimizers.py", 24, 96),
    "optimizer-in-backward": Style("in_backward.py", 16, 60, torch=(2, 1)),
    "folds": Style("folds.py", 40, 160),
    "torch-profiler": Style("profiled.py", 8, 32, torch=(2, 1)),  # the profiler of 2.0 counts otherwise from run to run
    "setprofile": Style("setprofile.py", 12, 48),
    "patches-torch-itself": Style("patches_torch.py", 12, 48),
    "closes-descriptors": Style("closes_descriptors.py", 10, 40),
    "isolated": Style("isolated.py", 0, None, ("ended-with-code", "torch-not-imported"), trained=0, journals=0, returncode=7),
    "torchrun": Style("torchrun ddp.py", 12, 96, trained=2, journals=3),
    "distributed-launch": Style("-m torch.distributed.launch ddp.py", 12, 96, trained=2, journals=3),
    "lightning": Style("lightning_trainer.py", 36, 184, needs="lightning"),
    "transformers": Style("transformers_trainer.py", 26, 152, needs="transformers"),
    "accelerate": Style("accelerated.py", 8, 60, needs="accelerate"),
    "accelerate-launch": Style("accelerate-launch accelerated.py", 8, 60, journals=2, needs="accelerate"),
}

# What --standalone means since torch 2.1; in 2.0 that one has a fixed port, and both runs of a test would want it.
TWO_RANKS = ["--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0", "--nproc_per_node", "2"]


# Each has a near relative that runs every time.
THOROUGH = {
    "gan",
    "timm-like",
    "folds",
    "own-optimizers",
    "in-a-bare-fork",
    "in-a-spawned-child",
    "in-parent-and-child",
    "in-a-forkserver-child",
    "distributed-launch",
    "accelerate-launch",
    "several-calls-in-data-parallel",
    "samplers-and-collate",
    "l-bfgs",
    "scripted-model",
    "evaluates-inside",
    "torch-profiler",
    "wgan-gp",
    "loader-subclasses",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough) if name in THOROUGH else name for name in CASES]
)
def test_nothing_changes_and_the_counts_are_true(name, tmp_path, forks):
    style = CASES[name]
    if importlib.util.find_spec(style.needs) is None:
        pytest.skip(f"{style.needs} is not installed")  # asked without importing it: that changes the environment
    if torch_version() < style.torch:
        pytest.skip(f"the script needs torch {'.'.join(map(str, style.torch))}")
    alone, ours = run_both(name, tmp_path, forks)

    assert alone.returncode == style.returncode, alone.stderr
    assert ours.returncode == alone.returncode, ours.stderr
    assert ours.stdout == alone.stdout
    assert written(ours.folder) == written(alone.folder)
    assert_loadable(ours.folder)
    assert_true(style, ours)


def test_what_is_asked_for_by_name_runs_every_time():
    """On the oldest torch a few styles run, by their names: one that is thorough would be left out without a word."""
    words = (
        re.search(r"not test_styles or ([a-z -]+)\"", (STYLES.parents[2] / ".ci" / "run").read_text()).group(1).split(" or ")
    )
    assert len(words) >= 5
    assert [word for word in words if not any(word in name for name in CASES.keys() - THOROUGH)] == []


def run_both(name, folder, forks):
    """Plain and under flatout at the same time; and nothing of them is left running.

    Under flatout always as a user would start it. The plain run is what it is compared with, and may be a fork.
    """
    style, mark = CASES[name], str(folder)
    plain, ours = folder / "plain", folder / "ours"
    environ = {**os.environ, **QUIET, MARK: mark, "PYTHONPATH": str(STYLES), "PYTHONHASHSEED": "0"}
    observed = begin([sys.executable, "-m", "flatout", "run", *words(style)], ours, environ)
    if name in WHOLE or not hasattr(os, "fork"):
        alone = end_of(begin([sys.executable, *words(style)], plain, environ), plain)
    else:
        plain.mkdir()
        streams = [folder / "stdout", folder / "stderr"]
        request = {"folder": str(plain), "words": words(style), "environ": {**environ, "STYLE_PATH": str(STYLES)}}
        code = forks().run({**request, "agent": False, "streams": [str(one) for one in streams], "trace": ""})
        alone = Ended(code, streams[0].read_bytes(), streams[1].read_text(encoding="utf-8", errors="replace"), plain)
    ended = [alone, end_of(observed, ours)]
    assert not left_running(mark)
    return ended


def begin(command, place, environ):
    place.mkdir()
    return subprocess.Popen(
        command, cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ
    )


def end_of(process, place):
    out, err = process.communicate(timeout=240)
    return Ended(process.returncode, out, err.decode("utf-8", "replace"), place)


def words(style):
    first, *rest = style.command.split()
    if first == "torchrun":
        return ["-m", "torch.distributed.run", *TWO_RANKS, *in_styles(rest)]
    if first == "accelerate-launch":
        return ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "--num_machines", "1", *in_styles(rest)]
    if style.command.startswith("-m torch.distributed.launch"):
        return ["-m", "torch.distributed.launch", *TWO_RANKS, *in_styles(rest[1:])]
    return style.command.split() if first == "-m" else in_styles([first, *rest])


def in_styles(command):
    script, *arguments = command
    return [str(STYLES / script), *arguments]


def left_running(mark, seconds=10):
    """Processes that still bear the mark: multiprocessing's helpers take a moment to go."""
    end = time.monotonic() + seconds
    while (left := [process for process in psutil.process_iter() if bears(process, mark)]) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def bears(process, mark):
    try:
        return process.environ().get(MARK) == mark
    except psutil.Error:
        return False


def written(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".flatout" not in path.relative_to(folder).parts
    }


def assert_loadable(folder):
    """By plain torch, here: this process has no agent."""
    for path in folder.rglob("*.pt"):
        assert torch.load(path, weights_only=True) is not None
        assert b"flatout" not in path.read_bytes()


def assert_true(style, ours):
    summary = ours.summary
    codes = [note["code"] for note in summary["notes"] if note["code"] != "no-gpu"]  # that one is the machine's
    assert codes == list(style.notes), summary["notes"]
    found = summary["samples"] if isinstance(summary["samples"], int) else None
    assert (summary["steps"], found, summary["processes"]) == (style.steps, style.samples, style.trained)
    assert len(list(ours.run_folder.glob("journal-*"))) == style.journals
    assert sum(summary["phases"].values()) == pytest.approx(summary["wall_s"], rel=1e-6)
    assert min(summary["phases"].values()) >= 0
    assert summary["exit_code"] == style.returncode
