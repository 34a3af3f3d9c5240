"""The four specimens under flatout: same output, same weights, every step found, the time explained."""

import hashlib
import os
from pathlib import Path

import pytest

pytest.importorskip("torch")

from conftest import EXAMPLES, QUIET
from flatout.base import records
from flatout.measure.model import Summary

TRAINED = Path(__file__).with_name("trained.py")

# script, arguments, steps, samples, batches of validation
CASES = {
    "restoration": (["--small", "--train-size", "160", "--epochs", "2"], 20, 320),
    "behavior": (["--small", "--train-size", "320", "--epochs", "2"], 20, 640),
    "vision": (["--small", "--train-size", "660"], 10, 640),
    "gpt": (["--small", "--steps", "12"], 12, 48),
}


def test_specimens_are_the_frozen_ones():
    lines = (EXAMPLES / "SHA256SUMS").read_text(encoding="ascii").splitlines()
    assert len(lines) == 7
    for line in lines:
        wanted, name = line.split()
        assert hashlib.sha256((EXAMPLES / name).read_bytes()).hexdigest() == wanted, name


@pytest.mark.parametrize("name", CASES)
def test_specimen_is_untouched_and_explained(name, flatout, forks, tmp_path):
    """Under flatout as a user would start it; the plain run is a fork that has torch already."""
    arguments, steps, samples = CASES[name]
    command = [str(word) for word in (TRAINED, "digest", EXAMPLES / f"{name}.py", *arguments, "--seed", "3")]

    (tmp_path / "plain").mkdir()
    streams = [tmp_path / "stdout", tmp_path / "stderr"]
    request = {"folder": str(tmp_path / "plain"), "words": command, "environ": {**os.environ, **QUIET}, "agent": False}
    assert forks().run({**request, "streams": [str(one) for one in streams], "trace": ""}) == 0, streams[1].read_text()
    ours = flatout("run", *command)
    assert ours.returncode == 0, ours.stderr

    assert ours.stdout == streams[0].read_bytes()
    assert (tmp_path / "digest").read_text() == (tmp_path / "plain" / "digest").read_text()
    _same_checkpoints(tmp_path / "plain", tmp_path)

    summary = ours.summary
    assert summary["steps"] == steps
    assert summary["samples"] == samples
    assert summary["exit_code"] == 0
    assert {note["code"] for note in summary["notes"]} <= {"no-gpu", "build-without-cuda"}
    assert sum(summary["phases"].values()) == pytest.approx(summary["wall_s"], rel=1e-6)
    assert summary["phases"]["unexplained"] <= 0.05 * summary["wall_s"]
    assert summary["samples_per_s"] > 0
    for phase in ("startup", "input", "forward", "backward", "optimizer"):
        assert summary["phases"][phase] > 0, phase
    assert "Where the time went" in ours.stderr
    assert records.encode(records.read(ours.run_folder / "summary.json", Summary)) == records.encode(summary)


def _same_checkpoints(plain, ours):
    import torch

    files = {path.relative_to(plain) for path in plain.rglob("*.pt")}
    assert files == {path.relative_to(ours) for path in ours.rglob("*.pt") if "plain" not in path.parts}
    for file in files:
        assert _flat(torch.load(plain / file, weights_only=True)) == _flat(torch.load(ours / file, weights_only=True))


def _flat(value):
    import torch

    if isinstance(value, torch.Tensor):
        return value.dtype, value.tolist()
    if isinstance(value, dict):
        return {key: _flat(inner) for key, inner in value.items()}
    return [_flat(inner) for inner in value] if isinstance(value, list) else value
