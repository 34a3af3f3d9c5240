"""The public names as a type checker sees them, and the guide's loop in under twelve lines."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE / "user_example.py"
MEASURES = HERE / "user_measures.py"


def test_a_users_file_passes_mypy_strict(tmp_path):
    pytest.importorskip("mypy")
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import flatout\nflatout.TrainingAccelerator(3)\nx: int = flatout.TrainingAccelerator().precision\n")
    # With the project's settings and its cache: seconds where `dev.py test` has just checked the rest. Torch is Any in them;
    # with torch's own types the same file passes as well, but that takes minutes.
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "pyproject.toml"]
    ended = subprocess.run(
        [*command, str(EXAMPLE), str(MEASURES), str(wrong)], capture_output=True, text=True, check=False, cwd=HERE.parents[1]
    )
    faults = [line for line in ended.stdout.splitlines() if "error:" in line]
    assert [line.split(":")[1] for line in faults if "wrong.py" in line] == ["2", "3"], ended.stdout
    assert len(faults) == 2, ended.stdout  # none in the user's file


def test_the_same_file_runs(tmp_path):
    from user_example import train

    assert train(str(tmp_path / "last.pt")).steps == 8


def test_the_measurements_run():
    from user_measures import arguments, measure, watch

    assert measure(0.01).endswith("True")
    assert arguments()["left out"] == ["workers", "pin_memory"]
    assert "8 samples" in watch(1)[0]


def test_the_loop_is_under_twelve_lines():
    text = EXAMPLE.read_text(encoding="utf-8")
    lines = text[text.index("    accelerator = flatout") : text.index("    return accelerator")].strip().splitlines()
    assert len(lines) < 12
