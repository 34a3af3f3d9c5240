"""The four specimens under flatout: same output, same weights, every step found, the time explained."""

import hashlib
from pathlib import Path

import pytest

pytest.importorskip("torch")

from conftest import EXAMPLES
from flatout.base import records
from flatout.measure.model import Summary

TRAINED = Path(__file__).with_name("trained.py")

# script, arguments, steps, samples, batches of validation
CASES = {
    "restoration": (["--small", "--train-size", "240", "--epochs", "2"], 30, 480),
    "behavior": (["--small", "--train-size", "500", "--epochs", "2"], 32, 1000),
    "vision": (["--small", "--train-size", "660"], 10, 640),
    "gpt": (["--small", "--steps", "12"], 12, 48),
}


def test_specimens_are_the_frozen_ones():
    lines = (EXAMPLES / "SHA256SUMS").read_text(encoding="ascii").splitlines()
    assert len(lines) == 7
    for line in lines:
        wanted, name = line.split()
        assert hashlib.sha256((EXAMPLES / name).read_bytes()).hexdigest() == wanted, name


OFTEN = ("restoration", "gpt")  # images from a loader with workers, and tokens


@pytest.mark.parametrize("name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.thorough) for name in CASES])
def test_specimen_is_untouched_and_explained(name, flatout, plain, tmp_path):
    arguments, steps, samples = CASES[name]
    command = [TRAINED, "digest", EXAMPLES / f"{name}.py", *arguments, "--seed", "3"]

    alone = plain(*command)
    assert alone.returncode == 0, alone.stderr.decode()
    ours = flatout("run", *command)
    assert ours.returncode == 0, ours.stderr

    assert ours.stdout == alone.stdout
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
