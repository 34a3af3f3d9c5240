"""Which interpreter, which command, which environment."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from flatout.base.errors import UsageError
from flatout.base.records import Missing
from flatout.launch import compiled, environment, folder, interpreter, own_argument, target
from flatout.launch.written import folders_of
from flatout.machine import host


def test_own_interpreter_by_default():
    assert interpreter.choose(None, {}) == (sys.executable, "own")
    assert interpreter.choose(None, {"VIRTUAL_ENV": sys.prefix}) == (sys.executable, "own")


def test_active_environment_wins_when_we_live_elsewhere(tmp_path):
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    for variable, reason in (("VIRTUAL_ENV", "virtual-env"), ("CONDA_PREFIX", "conda")):
        assert interpreter.choose(None, {variable: str(tmp_path / "env")}) == (str(python), reason)
    assert interpreter.choose(None, {"VIRTUAL_ENV": str(tmp_path / "gone")}) == (sys.executable, "own")
    assert interpreter.choose(str(python), {}) == (str(python), "asked")
    with pytest.raises(UsageError):
        interpreter.choose(str(tmp_path / "nothing"), {})


def test_targets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    assert target.command_line("py", ["train.py", "-a"]) == ["py", "train.py", "-a"]
    Path("launch.sh").write_text("python train.py\n")
    shell, *words = target.command_line("py", ["launch.sh", "-a"])
    assert (os.path.basename(shell), words) == ("bash", ["launch.sh", "-a"])
    assert target.command_line("py", ["-m", "pkg", "-a"]) == ["py", "-m", "pkg", "-a"]
    assert target.command_line("py", [os.path.basename(sys.executable), "x"])[1:] == ["x"]
    for words in (["nope.py"], ["./nope"], ["no-such-command-anywhere"], ["-m"], ["-x", "train.py"]):
        with pytest.raises(UsageError):
            target.command_line("py", words)


def test_environment_adds_one_folder_and_no_empty_entry(tmp_path):
    added = environment.injected({"A": "1"}, tmp_path / "job.json")
    assert added["PYTHONPATH"] == str(environment.INJECT)
    assert [path.name for path in environment.INJECT.iterdir() if path.suffix == ".py"] == ["sitecustomize.py"]
    added = environment.injected({"PYTHONPATH": "mine"}, tmp_path / "job.json")
    assert added["PYTHONPATH"] == f"{environment.INJECT}{os.pathsep}mine"
    assert environment.switched_off({"FLATOUT": "OFF"})
    assert not environment.switched_off({})


LONG = "x" * 300


@pytest.mark.parametrize(
    "words",
    [
        ["~hydra/launcher"],
        [f"--prompt={LONG}/ and more"],
        [f"{LONG}.py"],
        [f"{LONG}/{LONG}"],
        ["a/" * 3000],
        ["loop/x"],
        ["loop"],
        ["-m", ""],
        ["-m", "."],
        ["-m", "//"],
        ["-m", LONG],
    ],
    ids=lambda words: words[-1][:20],
)
def test_words_that_look_like_paths_and_are_none(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    (tmp_path / "train.py").write_text(f"import {LONG}\n")
    for line in (words, ["train.py", *words], [*words, "train.py"]):
        target.script_file(line), target.home(line), target.as_typed(line)
        assert folders_of(line, tmp_path) == [tmp_path]
    assert isinstance(own_argument.find(own_argument.Searched(words=["train.py", *words], names=own_argument.BATCH)), Missing)


def test_a_folder_that_everybody_writes_to_is_not_compared(tmp_path):
    """What other programs do in shared memory was blamed on the script that was asked for its help."""
    assert folders_of(["train.py", "/dev/shm/data.bin", "--log=/var/tmp/log.txt", "--out", "/tmp/x.csv"], tmp_path) == [
        tmp_path
    ]


def test_the_help_look_of_a_script_with_words_of_hydras(flatout, script):
    """`~group/option` takes something out of Hydra's defaults; no user has that name."""
    path = script("import argparse\nparser = argparse.ArgumentParser()\nprint(parser.parse_known_args())")
    ended = flatout("run", "--batch-size", "8", path.name, "~hydra/launcher", f"--prompt={LONG}/x")
    assert ended.returncode == 2
    assert "has no argument for the batch size that flatout knows" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", ["run", "tune"])
def test_an_option_that_is_not_ours_is_named_without_its_value(command, flatout, script):
    """It may be a password, and what is said is shown and kept."""
    ended = flatout(command, "--wandb-token=hunter22", script("").name)
    assert ended.returncode == 2
    assert "--wandb-token" in ended.stderr
    assert "hunter22" not in ended.stderr


def test_run_folder_keeps_itself_out_of_git(tmp_path):
    first, place = folder.new_run(tmp_path, 0.0)
    second, _ = folder.new_run(tmp_path, 0.0)
    assert first != second
    assert place.is_dir()
    assert (tmp_path / ".flatout" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("by", ["variable", "setting"])
def test_records_are_kept_elsewhere_for_good(by, tmp_path):
    here, config = tmp_path / "work" / "project", tmp_path / "config" / "flatout"
    for part in (here, config):
        part.mkdir(parents=True)
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}
    if by == "variable":
        environ["FLATOUT_RECORDS"] = "state"
    else:
        (config / "settings.toml").write_text('records = "state"')
    _, place = folder.new_run(here, 0.0, environ)
    assert place.is_relative_to(tmp_path / "state" / "flatout")
    assert place.parent.parent == folder.records_of(here, environ) != folder.records_of(here.parent, environ)
    assert list(here.iterdir()) == []
    assert folder.records_of(here, {**environ, "FLATOUT_RECORDS": "here"}) == here / ".flatout"
    named = folder.records_of(here, {**environ, "FLATOUT_RECORDS": str(tmp_path / "named")})
    assert named.parent == tmp_path / "named"


@pytest.mark.skipif(sys.platform == "win32", reason="users have numbers on POSIX")
def test_a_user_without_a_name_and_a_home(tmp_path, monkeypatch):
    """As in a container with `--user 54321`."""
    here, environ = tmp_path / "here", dict[str, str]()
    here.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "here"))
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert folder.records_of(here, environ) == here / ".flatout"
    assert folder.new_run(here, 0.0, {"FLATOUT_RECORDS": "state"})[1].is_relative_to(here)
    with pytest.raises(UsageError):
        folder.new_run(here, 0.0, {"FLATOUT_RECORDS": "~nosuch/x"})
    assert compiled.caches(environ) == {}
    assert compiled.caches({"TRITON_CACHE_DIR": str(tmp_path / "t")}) == {"TRITON_CACHE_DIR": str(tmp_path / "t")}


@pytest.mark.skipif(sys.platform != "linux", reason="user namespaces are Linux's")
def test_a_run_of_a_user_without_a_name_and_a_home(script, tmp_path):
    as_nobody = ["unshare", "--user", "--map-user=54321"]
    if subprocess.run([*as_nobody, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("user namespaces are refused here")
    environ = {name: value for name, value in os.environ.items() if name != "HOME"}
    line = [*as_nobody, sys.executable, "-m", "flatout", "run", "--compile", "default", str(script("print('trained')"))]
    ended = subprocess.run(line, cwd=tmp_path, env=environ, capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, b"trained\n"), ended.stderr
    assert b"Traceback" not in ended.stderr
    assert list((tmp_path / ".flatout" / "runs").iterdir())


@pytest.mark.parametrize("wanted", ["relative/folder", "here/", "STATE", "/a\0b"])
def test_a_place_for_records_that_cannot_be_meant(wanted, tmp_path):
    with pytest.raises(UsageError) as raised:
        folder.new_run(tmp_path, 0.0, {"FLATOUT_RECORDS": wanted})
    assert raised.value.key == "error.records-place"


@pytest.mark.parametrize("text", [b"records = 3", b"\xff", b"records = ", b"[" * 5000])
def test_a_settings_file_that_cannot_be_read(text, tmp_path):
    settings = tmp_path / "flatout" / "settings.toml"
    settings.parent.mkdir()
    settings.write_bytes(text)
    with pytest.raises(UsageError):
        folder.records_of(tmp_path, {"XDG_CONFIG_HOME": str(tmp_path)})


def test_nowhere_to_write(tmp_path, monkeypatch):
    (tmp_path / ".flatout").write_text("in the way")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(folder.NoPlaceForRecordsError) as caught:
        folder.new_run(tmp_path, 0.0)
    assert caught.value.key == "error.no-place-for-records"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ({}, None),
    ],
)
def test_cpu_quota(files, quota, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert host.cpu_quota(tmp_path) == quota


def test_memory_limit(tmp_path):
    assert host.memory_limit(tmp_path, 100).reason == "no-limit"
    (tmp_path / "memory.max").write_text("50")
    assert host.memory_limit(tmp_path, 100) == 50
    (tmp_path / "memory.max").write_text(str(2**63))
    assert host.memory_limit(tmp_path, 100).reason == "no-limit"
