"""A protection under which scripts do not run is none: what ordinary scripts write is led aside, and they reach their steps."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import ordinary
import planted_home
import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
MANY = 70  # of eighty

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have the guard alone, or less")


@pytest.fixture
def top():
    top = Path(tempfile.mkdtemp(prefix="ordinary-"))
    yield top
    shutil.rmtree(top, ignore_errors=True)


def plant(at):
    """What an earlier run left."""
    (at / "checkpoints").mkdir(parents=True)
    (at / "checkpoints" / "old.pt").write_bytes(b"old")
    (at / "results.csv").write_text("epoch,loss\n0,1\n", encoding="ascii")
    (at / "config.json").write_text('{"lr": 1}', encoding="ascii")
    (at / "train.log").write_text("old\n", encoding="ascii")
    (at / "latest.pt").symlink_to("checkpoints/old.pt")


@pytest.mark.parametrize("kind", ["landlock", pytest.param("guard", marks=pytest.mark.thorough)])
def test_ordinary_scripts_reach_their_steps(top, kind, tmp_path):
    project = top / "home" / "project"
    places = {".": project, "../outputs": top / "home" / "outputs", "~": top / "home", str(top / "disk"): top / "disk"}
    for place in places.values():
        for habit in ordinary.HABITS:
            plant(place / habit.__name__)
    planted_home.age(top)
    before = planted_home.snapshot(top)
    environ = {**os.environ, "HOME": str(top / "home"), "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    environ["XDG_CACHE_HOME"] = str(tmp_path)
    line = [sys.executable, HERE / "trial_under.py", kind, HERE / "ordinary.py", ":".join(places)]
    ended = subprocess.run([*map(str, line)], cwd=project, env=environ, capture_output=True, text=True, check=False)
    if "this system does not give it" in ended.stderr:
        pytest.skip(f"no {kind} here")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    lines = told["output"].splitlines()
    reached = [line for line in lines if line.startswith("reached ")]
    failed = [line for line in lines if line.startswith("failed ")]
    assert len(reached) + len(failed) == len(places) * len(ordinary.HABITS) == 80, told["output"][-3000:]
    assert len(reached) >= MANY, failed
    changed = planted_home.differences(before, planted_home.snapshot(top))
    by_shell = [line for line in changed if "mkdir_by_the_shell" in line]
    # Another program, which the guard alone does not hold: `guard-programs`.
    assert sorted(changed) == (by_shell if kind == "guard" else [])
    assert told["changed"] == []
    by_shell = str(project / "mkdir_by_the_shell" / "by-shell")  # the other places are not compared: that is said
    assert told["made"] == ([by_shell] if kind == "guard" else [])
