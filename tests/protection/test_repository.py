"""Scripts note the commit that they were run at: trials in a folder of a repository know it as well."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import QUIET, landlock_version

HERE = Path(__file__).parent
ASKS = """
import json, subprocess
told = {}
for words in (["rev-parse", "HEAD"], ["rev-parse", "--show-toplevel"], ["log", "-1", "--format=%s"], ["status", "--short"],
              ["describe", "--always", "--dirty"], ["branch", "--show-current"], ["diff", "--stat"]):
    try:
        ended = subprocess.run(["git", *words], capture_output=True, text=True)
        told[" ".join(words)] = [ended.returncode, ended.stdout, ended.stderr]
    except OSError as error:
        told[" ".join(words)] = [str(error)]
print(json.dumps(told))
"""

pytestmark = pytest.mark.skipif(not shutil.which("git") or sys.platform == "win32", reason="no git")
LANDLOCK = pytest.mark.skipif(landlock_version() < 2, reason="no Landlock here")


def git(folder, *words):
    subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)


@pytest.mark.parametrize("kind", ["guard", pytest.param("landlock", marks=LANDLOCK)])
def test_a_folder_of_a_repository_knows_its_repository(kind, tmp_path):
    folder = tmp_path / "repository" / "inner"
    folder.mkdir(parents=True)
    script = folder / "train.py"
    script.write_text(ASKS)
    git(tmp_path / "repository", "init", "-q", "-b", "main")
    git(tmp_path / "repository", "add", ".")
    git(tmp_path / "repository", "commit", "-q", "-m", "first")
    script.write_text(ASKS + "# changed since\n")
    os.utime(script, (0, 0))  # git would note in its index when it has looked at this file
    index = (tmp_path / "repository" / ".git" / "index").read_bytes()
    line = [sys.executable, HERE / "trial_under.py", kind, "train.py"]
    ended = subprocess.run(line, cwd=folder, env={**os.environ, **QUIET}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["kind"] == kind
    assert (tmp_path / "repository" / ".git" / "index").read_bytes() == index
    plain = subprocess.run([sys.executable, "train.py"], cwd=folder, capture_output=True, text=True, check=True)
    assert (told["status"], told["refused"]) == (0, None)
    assert json.loads(told["output"]) == json.loads(plain.stdout)
