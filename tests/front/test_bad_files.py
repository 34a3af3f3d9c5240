"""Files that were damaged, made to take for ever, or put there by somebody else; and places that cannot be written."""

import os
import stat
import sys
import time
from pathlib import Path

import pytest

from flatout.base import records
from flatout.base.errors import FlatoutError, UsageError
from flatout.base.file_bytes import bytes_of
from flatout.base.records import Missing
from flatout.base.whole_number import whole_number
from flatout.base.words import Words
from flatout.cli.knob_flags import sentences
from flatout.doctor.paste.clean import clean
from flatout.doctor.paste.reader import read as read_paste
from flatout.knobs import profile_file
from flatout.knobs.profile import Profile
from flatout.launch import folder, own_argument
from flatout.launch.own_argument import BATCH, RATE
from flatout.launch.settings import Asked, decide
from flatout.machine import script_look
from flatout.machine.machine_facts import Facts
from flatout.tune.batch.command_line import RateRule, batch_line
from flatout.tune.config import config_file
from flatout.tune.execution.longer_script import Lasting
from flatout.tune.search.run_length import find_length

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DIGITS = "9" * 5000
DEEP = 400


def within(seconds, what, *given):
    began = time.perf_counter()
    try:
        found = what(*given)
    except FlatoutError as error:
        found = error
    assert time.perf_counter() - began < seconds
    return found


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * DEEP + "]" * DEEP,
        "a: " + "{b: " * DEEP + "1" + "}" * DEEP,
        "a: " + "[" * 6000,
        "- " * 3000,
        "\n".join(" " * level + "a:" for level in range(DEEP)),
        f"a: {DIGITS}",
        "a: 0x" + "f" * 5000,
        "\n".join(["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 9))]),
        "a: 9999-12-31T23:59:59+99:99",
        b"a: caf\xe9",
        b"\xff\xfea: 1",
    ],
    ids=["lists", "mappings", "6 kB", "dashes", "indented", "digits", "hexadecimal", "merged", "time", "latin-1", "utf-16"],
)
def test_yaml(text, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for what in (config_file.read, script_look.look):
        within(3.0, what, path)
    assert isinstance(within(3.0, config_file.read, path), UsageError)


@pytest.mark.parametrize("text", ['{"a":' * 5000, '{"a":' * DEEP + "1" + "}" * DEEP, f'{{"a": {DIGITS}}}', '{"a": "\xff"}'])
def test_json_and_records(text, tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("latin-1"))
    within(3.0, config_file.read, path)
    within(3.0, script_look.look, path)
    with pytest.raises(FlatoutError):
        records.read(path, Facts)


@pytest.mark.parametrize("text", [f"version = {DIGITS}", "a = " + "[" * 5000, "[knobs]\nworkers = " + DIGITS, b"a = '\xff'"])
def test_profiles(text, tmp_path):
    path = tmp_path / "flatout.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError):
        profile_file.read(path)


@pytest.mark.parametrize(
    "text",
    [
        "1" * 50_000,
        "1 " * 20_000,
        " " * 50_000,
        "\t" * 50_000,
        "CUDA_VISIBLE_DEVICES=0," * 3000,
        "torch==2." * 5000,
        "/a" * 20_000,
        "a\n" * 20_000,
    ],
)
def test_pastes_are_read_in_seconds(text):
    """Quadratic before: 5,000 digits took six seconds, 50,000 would take ten minutes."""
    began = time.process_time()  # others may be at work here
    read_paste(text)
    assert time.process_time() - began < 2.0


def test_what_bounds_a_paste_leaves_reports_as_they_are():
    text = "PyTorch version: 2.4.1\nGPU 0: NVIDIA RTX 4090\n" + "x" * 1500
    assert clean(text).lines[0] == "PyTorch version: 2.4.1"
    assert len(clean(text).lines[-1]) == 1500


@pytest.mark.skipif(sys.platform == "win32", reason="/proc and modes are POSIX")
@pytest.mark.parametrize("place", ["/proc/a.yaml", "a.yaml/b.yaml", "x" * 300 + ".yaml"])
def test_output_that_cannot_be_written(place, flatout, tmp_path):
    (tmp_path / "a.yaml").write_text("batch_size: 4\n")
    ended = flatout("tune", "--config", "a.yaml", "-o", place)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, b"", 1)
    assert ended.stderr.startswith("flatout: ")


def test_a_dry_run_is_not_refused_for_what_it_would_not_write(flatout, tmp_path):
    (tmp_path / "a.yaml").write_text("batch_size: 4\n")
    (tmp_path / "a_gpu_optimized.yaml").write_text("mine: 1\n")
    assert flatout("tune", "--config", "a.yaml").returncode == 2
    assert flatout("tune", "--config", "a.yaml", "--dry-run").returncode == 0
    assert (tmp_path / "a_gpu_optimized.yaml").read_text() == "mine: 1\n"


@pytest.mark.parametrize(
    "words",
    [
        ["--budget", "9" * 400],
        ["--budget", DIGITS],
        ["--budget", "9000h"],
        ["--steps-planned", "-5"],
        ["--steps-planned", "9" * 400],
        ["--gpu-memory-fraction", "nan"],
        ["--gpu-memory-fraction", "5"],
    ],
    ids=lambda words: f"{words[0]} {words[1][:8]}",
)
def test_numbers_that_cannot_be_meant(words, flatout, script):
    ended = flatout("tune", *words, script("import torch").name)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, b"", 1)
    assert ended.stderr.startswith(f"flatout: {words[0]} ")


@pytest.mark.parametrize("number", [DIGITS, "9" * 400, "\u00b2", "-1", "1e999", "nan"])
def test_numbers_among_the_scripts_own_arguments(number, tmp_path):
    path = tmp_path / "train.py"
    options = ", type=int)\nparser.add_argument(".join(f'"--{name}"' for name in ("epochs", "max-steps", "batch-size", "lr"))
    path.write_text(f"import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument({options})\n")
    line = [
        sys.executable,
        str(path),
        f"--epochs={number}",
        f"--max-steps={number}",
        f"--batch-size={number}",
        f"--lr={number}",
    ]
    assert find_length(line, None, {"loaders": [50]}, tmp_path) is None
    assert not Lasting(line).is_longer
    batch, rate = (own_argument.find(own_argument.Searched(words=line[1:], names=names)) for names in (BATCH, RATE))
    assert batch_line(batch, rate, RateRule.KEEP, 8).own == 8
    with pytest.raises(UsageError):
        batch_line(batch, rate, RateRule.LINEAR, 8)
    assert whole_number(number) is None


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and devices are POSIX")
def test_what_is_no_file_is_not_read_for_ever(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x y z a b c")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path, tmp_path / "large"):
        for what in (config_file.read, profile_file.read):
            assert isinstance(within(3.0, what, path), UsageError)
        assert isinstance(within(3.0, script_look.look, path), Missing)
        with pytest.raises(OSError, match=r"no file|directory|too large"):
            bytes_of(path, 10)
    assert bytes_of(tmp_path / "large", 11) == b"x y z a b c"
    assert bytes_of(Path("/proc/self/status"), 1 << 16).startswith(b"Name:")


def test_the_example_has_the_flags_that_it_is_told_of(tmp_path):
    import subprocess

    (tmp_path / "a.yaml").write_text("batch_size: 4\n")
    line = [sys.executable, str(EXAMPLES / "optimize_gpu.py"), "--config", "a.yaml"]
    environment = {**os.environ, "FLATOUT_LANG": "en"}
    ended = [
        subprocess.run([*line, *more], cwd=tmp_path, capture_output=True, env=environment)
        for more in ([], [], ["--force"], ["-o", "b.yaml"])
    ]
    assert [one.returncode for one in ended] == [0, 2, 0, 0]
    assert b"Use --force to overwrite it, or -o to choose another file" in ended[1].stderr


@pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX")
@pytest.mark.parametrize("mask", [0o077, 0o022, 0o002])
def test_records_and_profiles_follow_the_users_umask(mask, tmp_path):
    before = os.umask(mask)
    try:
        profile_file.write(tmp_path / "flatout.toml", Profile(knobs={"workers": "4"}))
        _, run = folder.new_run(tmp_path, 0.0)
        records.write(run / "summary.json", Profile())
        source = tmp_path / "a.yaml"
        source.write_text("a: 1\n")
        source.chmod(0o600)
        config_file.write(config_file.read(source), tmp_path / "b.yaml", "a: 2\n")
    finally:
        os.umask(before)
    for path in (tmp_path / "flatout.toml", run / "summary.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    assert stat.S_IMODE((tmp_path / "b.yaml").stat().st_mode) == 0o600


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can put something there as somebody else")
@pytest.mark.parametrize("mode", [0o1777, 0o2775])
def test_what_another_user_has_put_there_is_not_written_into(mode, flatout, script, tmp_path):
    mine, shared = tmp_path / "mine", tmp_path / "shared"
    for place in (mine, shared):
        place.mkdir()
    shared.chmod(mode)
    (tmp_path / "disk").mkdir()
    (mine / ".flatout").symlink_to(tmp_path / "disk")  # the user's own link to a data disk
    assert folder.new_run(mine, 0.0)[1].resolve().is_relative_to(tmp_path / "disk")
    for plant in (lambda: (shared / ".flatout").symlink_to(tmp_path / "disk"), lambda: (shared / ".flatout").mkdir()):
        plant()
        os.chown(shared / ".flatout", 12345, 12345, follow_symlinks=False)
        with pytest.raises(folder.NoPlaceForRecordsError):
            folder.new_run(shared, 0.0)
        ended = flatout("run", script("print('trained')"), cwd=shared)
        assert (ended.returncode, ended.stdout) == (0, b"trained\n")
        assert "measures nothing" in ended.stderr
        (shared / ".flatout").unlink() if (shared / ".flatout").is_symlink() else (shared / ".flatout").rmdir()
    assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == [".gitignore", "runs"]


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can put something there as somebody else")
@pytest.mark.parametrize("kind", ["link", "folder"])
def test_nor_what_lies_within_a_folder_of_the_users(kind, tmp_path):
    home = tmp_path / ".flatout"
    home.mkdir()
    home.chmod(0o2775)
    (tmp_path / "disk").mkdir()
    (home / "runs").symlink_to(tmp_path / "disk") if kind == "link" else (home / "runs").mkdir()
    os.chown(home / "runs", 12345, 12345, follow_symlinks=False)
    with pytest.raises(folder.NoPlaceForRecordsError):
        folder.new_run(tmp_path, 0.0)
    assert list((tmp_path / "disk").iterdir()) == []


def test_no_name_in_the_temporary_folder_can_be_foreseen(tmp_path, monkeypatch):
    monkeypatch.setattr(folder.tempfile, "tempdir", str(tmp_path))
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / ".flatout").write_text("a file where the folder should be")
    places = {folder.new_run(closed, 0.0)[1].parents[2] for _ in range(2)}
    assert len(places) == 2
    assert all(stat.S_IMODE(place.stat().st_mode) == 0o700 for place in places)


def test_a_profile_that_does_not_say_what_it_was_made_for_must_be_named(tmp_path):
    found, path = profile_file.parse("[knobs]\nworkers = 4\n", "p"), Path("p")
    left = decide(Asked(), path, found, [])
    assert (left.values, left.applied) == ({}, False)
    assert sentences(left, Words("en"))[0].startswith(
        "profile p is not applied, because it does not say for which script and machine it was made"
    )
    assert decide(Asked(profile="p"), path, found, []).values == {"workers": "4"}


@pytest.mark.parametrize(
    "arguments",
    [
        '"--output" = "/etc/passwd"',
        '"--batch-size" = "32; rm -rf"',
        '"train.py --x" = "64"',
        '"--batch-size" = "64"\n"--lr" = "0.1"\n"--n" = "3"',
    ],
)
def test_only_the_batch_and_its_rate_come_from_a_profile(arguments):
    with pytest.raises(UsageError, match="only two arguments of the script: the batch size and its learning rate"):
        profile_file.parse(f"[knobs]\nbatch_size = 64\n[arguments]\n{arguments}\n", "p")
    fine = profile_file.parse('[knobs]\nbatch_size = 64\n[arguments]\n"--bs" = "64"\n"--lr" = "1e-3"\n', "p")
    assert fine.arguments == {"--bs": "64", "--lr": "1e-3"}
