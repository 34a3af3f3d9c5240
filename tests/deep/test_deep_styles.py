"""Scripts whose ways have brought a look down before: under `--deep` they print and write the same, byte for byte."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

STYLES = Path(__file__).parents[1] / "run" / "styles"

CASES = [
    "evaluates_inside.py",  # validation in the middle of a look; a profiler that started twice crashed here
    "workers.py",  # forks in the middle of one
    "child_after_training.py",  # a forked child that trains
    "in_backward.py",  # optimizers that step inside the backward pass
    "profiled.py",  # the script's own profiler
    "setprofile.py",  # traces its threads
]


def written(folder):
    found = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {str(name): path.read_bytes() for name, path in found.items() if ".flatout" not in name.parts}


THOROUGH = ("workers.py", "setprofile.py", "evaluates_inside.py", "child_after_training.py", "in_backward.py")


def rarely(command):
    return pytest.param(command, marks=pytest.mark.thorough) if command in THOROUGH else command


@pytest.mark.parametrize("command", [rarely(command) for command in CASES])
def test_nothing_changes_under_the_deep_look(command, flatout, plain, tmp_path):
    name, *arguments = command.split()
    here = tmp_path / "ours"
    here.mkdir()
    alone = plain(STYLES / name, *arguments)
    ours = flatout("run", "--deep", "-q", STYLES / name, *arguments, cwd=here)
    assert (ours.returncode, ours.stdout) == (alone.returncode, alone.stdout), ours.stderr
    assert written(here) == written(tmp_path / "plain")
    assert not [note for note in ours.summary["notes"] if note["code"] == "own-fault"], ours.summary["notes"]
