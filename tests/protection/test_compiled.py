"""What compilers built for trials is found by the runs that follow."""

import os
import subprocess
import sys

import pytest

from conftest import QUIET
from flatout.knobs.catalogue import RECORDED
from flatout.launch.compiled import CACHES, caches, caches_for


def test_a_folder_of_ours_for_each_and_the_users_own_counts_more(tmp_path):
    ours = {"HOME": str(tmp_path / "home"), "CUDA_CACHE_PATH": str(tmp_path / "mine")}
    found = caches(ours)
    assert set(found) == set(CACHES)
    assert found["CUDA_CACHE_PATH"] == str(tmp_path / "mine")
    assert found["TRITON_CACHE_DIR"] == str(tmp_path / "home" / ".cache" / "flatout" / "compiled" / "triton")
    assert all(os.path.isdir(folder) for folder in found.values())
    elsewhere = caches({"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert elsewhere["TRITON_CACHE_DIR"].startswith(str(tmp_path / "cache"))


def test_what_cannot_be_made_is_left_out(tmp_path):
    (tmp_path / "file").touch()
    assert caches({"HOME": str(tmp_path / "file")}) == {}


def test_trials_get_a_folder_of_the_users_only_where_it_holds_what_was_built(tmp_path, monkeypatch):
    project, disk = tmp_path / "home" / "project", tmp_path / "disk"
    for folder in (project, disk / "job"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(project)
    (tmp_path / "link").symlink_to(disk)
    (disk / "job" / "weights.pt").touch()
    full = tmp_path / "full"
    for entry in ("index", "3", "ab", "fxgraph", "tmp.pid_1", "K" * 52):
        (full / entry).mkdir(parents=True)

    def given(folder):
        environ = {"HOME": str(tmp_path / "home"), "TRITON_CACHE_DIR": str(folder)}
        return caches(environ, [disk / "job"])["TRITON_CACHE_DIR"] == str(folder)

    assert not any(
        map(given, (project, tmp_path, tmp_path / "home", "/", disk, disk / "job", tmp_path / "link", project / ".."))
    )
    assert all(map(given, (full, tmp_path / "new", project / "cache" / "triton")))
    (full / "best.pt").touch()
    assert not given(full)


@pytest.mark.parametrize("kind", ["landlock", "overlay", "guard"])
def test_what_else_lies_there_is_not_written_to_and_that_is_said(tmp_path, kind):
    """`TRITON_CACHE_DIR=$SLURM_TMPDIR` must not open all of it."""
    scratch = tmp_path / "scratch"
    (scratch / "job").mkdir(parents=True)
    (scratch / "job" / "best.pt").write_bytes(b"mine")
    by_sed = "import subprocess, sys; subprocess.run(['sed', '-i', 's/mine/gone/', sys.argv[1]])"
    by_python = "import sys; open(sys.argv[1], 'w').close()"
    (tmp_path / "train.py").write_text(by_python if kind == "guard" else by_sed, encoding="ascii")
    environ = {**os.environ, **QUIET, "XDG_CACHE_HOME": str(tmp_path / "cache"), "FLATOUT_TRIALS": kind}
    command = [sys.executable, "-m", "flatout", "tune", "--dry-run", "train.py", str(scratch / "job" / "best.pt")]
    told = {**environ, "TRITON_CACHE_DIR": str(scratch)}
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=told)
    if "cannot be used on this system" in ended.stderr:
        pytest.skip(f"no {kind} here")
    assert f"Trials may not write to {scratch} (TRITON_CACHE_DIR)" in ended.stderr
    assert (scratch / "job" / "best.pt").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("knobs", "wanted"),
    [
        ({}, False),
        ({"compile": "no"}, False),
        ({"compile": RECORDED}, False),
        ({"tf32": "on"}, False),
        ({"compile": "default"}, True),
    ],
)
def test_a_run_finds_them_where_a_knob_compiles(knobs, wanted, tmp_path):
    assert bool(caches_for(knobs, {"HOME": str(tmp_path)})) is wanted
