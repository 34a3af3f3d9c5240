"""What went past the guard or Landlock is named, and nothing of what others did beside the trials."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from conftest import QUIET
from flatout.launch import changed_files
from flatout.launch.changed_files import Watch
from flatout.launch.landlock import Landlock
from flatout.launch.python_guard import Guard

GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
needs_git = pytest.mark.skipif(not shutil.which("git"), reason="no git")


@pytest.fixture
def project(tmp_path):
    project = tmp_path / "project"
    (project / "runs").mkdir(parents=True)
    (project / "log.csv").write_text("epoch,loss\n", encoding="ascii")
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "best.pt").write_bytes(b"best")
    (project / "checkpoints").symlink_to(tmp_path / "disk")
    return project


def watched(*folders, alone=()):
    return Watch(folders, map(str, alone), folders[0] / "no shared memory")


def changed(watch):
    return [path.name for path in watch.changed(lambda *_: True)]


def test_files_that_were_there_in_folders_and_behind_links(project, tmp_path):
    seen = watched(project)
    assert (changed(seen), seen.made()) == ([], [])
    with (project / "log.csv").open("a") as file:
        file.write("0,1\n")
    (tmp_path / "disk" / "best.pt").unlink()
    (project / "runs").chmod(0o711)
    assert sorted(changed(seen)) == ["best.pt", "log.csv", "runs"]


def test_what_is_new_is_named_by_its_outermost_folder(project, tmp_path):
    (project / "mine").mkdir()
    (project / "search").mkdir()
    (project / "search" / "tune.jsonl").touch()
    seen = watched(project, alone=[project / "mine"])
    (project / "runs" / "1" / "deep").mkdir(parents=True)
    (tmp_path / "disk" / "new.pt").touch()
    for ours in ("mine/x", "search/trials.log", ".flatout", "__pycache__"):
        (project / ours).touch()
    assert sorted(path.name for path in seen.made()) == ["1", "new.pt"]
    assert changed(seen) == []  # no folder is other for what lies in it


def test_what_there_is_no_time_for_is_named_and_nothing_in_it(project, monkeypatch):
    for number in range(9):
        (project / "runs" / str(number)).touch()
    monkeypatch.setattr(changed_files, "MOST_FILES", 9)
    seen = watched(project)
    assert seen.left_out == str(project / "runs")
    (project / "runs" / "new").touch()
    (project / "new").touch()
    assert [path.name for path in seen.made()] == ["new"]
    assert str(project / "runs" / "new") not in map(str, seen.made())
    monkeypatch.setattr(changed_files, "MOST_S", -1.0)
    assert watched(project).left_out == str(project)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell who has a file open")
def test_a_log_that_another_program_writes_to_is_its_own(project):
    seen = watched(project)
    with (project / "log.csv").open("a") as file:
        file.write("of ours, if we were another process")
        file.flush()
        assert changed(seen) == ["log.csv"]
    seen = watched(project)
    code = "import sys; file = open(sys.argv[1], 'a'); print(1, file=file, flush=True); print(1, flush=True); input()"
    line = [sys.executable, "-c", code, str(project / "log.csv")]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline()
        assert changed(seen) == []
        other.communicate(b"\n")
    with (project / "log.csv").open("rb") as reading, subprocess.Popen(["sleep", "100"], stdin=reading) as reader:
        assert changed(seen) == ["log.csv"]  # whoever reads it did not do that
        reader.kill()


@needs_git
def test_of_a_repository_what_a_commit_changes_and_not_what_looking_at_it_does(project):
    def git(*words):
        subprocess.run([*GIT, *words], cwd=project, check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "a")
    (project / "runs" / "new.txt").touch()
    seen = watched(project / "runs")  # it belongs to the repository above it
    os.utime(project / "log.csv", (1, 1))
    git("status")
    git("gc", "-q")
    assert changed(seen) == []
    git("add", ".")
    assert changed(seen) == [".git"]
    git("reset", "-q")
    assert changed(seen) == []
    for line in ("commit --allow-empty -qm b", "checkout -qb other", "config user.name b", "stash -uq"):
        before = watched(project)
        git(*line.split())
        assert ".git" in changed(before), line


@pytest.mark.skipif(sys.platform != "linux", reason="no Landlock")
def test_under_landlock_a_neighbour_is_not_blamed_and_the_gaps_are_seen(project):
    def held():
        protection = Landlock([project], {"HOME": str(project), "XDG_CACHE_HOME": str(project / "cache")})
        protection.__enter__()
        if not protection.ready:
            pytest.skip("no Landlock here")
        return protection

    for what, blamed in (
        (lambda path: path.write_text("epoch,loss\n0,1\n"), False),
        (lambda path: path.write_text("EPOCH,LOSS\n"), False),  # as long as it was
        (lambda path: path.unlink(), False),
        (lambda path: os.link(path, path.with_name("other")), False),
        (lambda path: path.chmod(0o600), True),
        (lambda path: os.utime(path, (1, 1)), True),
    ):
        protection = held()
        (project / "cache" / "flatout" / "compiled" / "triton" / "kernel").touch()
        time.sleep(0.01)
        what(project / "log.csv")
        assert [path.name for path in protection.changed()] == ["log.csv"] * blamed
        assert protection.made() == []
        protection.__exit__()
        (project / "other").unlink(missing_ok=True)
        (project / "log.csv").write_text("epoch,loss\n", encoding="ascii")


def test_the_guard_leaves_what_is_ours(project, monkeypatch):
    monkeypatch.chdir(project)
    environ = {"HOME": str(project), "TRITON_CACHE_DIR": str(project / "triton"), "FLATOUT_RECORDS": str(project / "records")}
    with Guard([project], environ) as guard:
        (project / "triton" / "kernel").touch()
        (project / "records").mkdir()
        (project / ".flatout" / "runs").mkdir(parents=True)
        guard.wrap([])
        assert (guard.changed(), [path.name for path in guard.made()]) == ([], ["records"])


LINES = """
import subprocess, sys
for line in sys.argv[1:]:
    subprocess.run(line.split(), check=False)
"""
TRAINS = """
import torch
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4000):
    loss = net(torch.randn(4, 8)).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def dry_run(project, script, *lines):
    """Under the guard: another program does what it likes there."""
    (project / "train.py").write_text(script, encoding="ascii")
    environ = {**os.environ, **QUIET, "FLATOUT_TRIALS": "guard", "XDG_CACHE_HOME": str(project.parent / "cache")}
    command = [sys.executable, "-m", "flatout", "tune", "--dry-run", "--json", "train.py", *lines]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, env=environ)


@pytest.mark.skipif(sys.platform != "linux", reason="sed")
def test_tune_ends_with_the_name_of_what_was_changed(project):
    ended = dry_run(project, LINES, "sed -i s/epoch/step/ log.csv")
    assert ended.returncode == 1
    said, _, _ = ended.stderr.partition(f"{project}/log.csv was changed while a trial ran")
    assert said != ended.stderr
    assert f"checks whether files changed in these folders, and where links in them point: {project}" in said


@pytest.mark.skipif(sys.platform != "linux", reason="mkdir")
def test_tune_names_what_is_new(project):
    ended = dry_run(project, LINES, "mkdir -p by-shell/1")
    assert f"{project}/by-shell. They were made by a program that the script started" in ended.stderr


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="mkdir")
def test_its_exit_status_is_one_for_what_is_new_alone(project):
    pytest.importorskip("torch")
    for lines, status in ((["mkdir -p by-shell/1"], 1), ([], 0)):
        ended = dry_run(project, LINES + TRAINS, *lines)
        assert json.loads(ended.stdout)["would_try"], ended.stderr
        assert ended.returncode == status, ended.stderr
