"""Output that cannot be written, and the language that is asked for after the command."""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flatout.base import records
from flatout.base.words import Words
from flatout.cli.commandline import NotWrittenError, write_record
from flatout.cli.main import NOT_WRITTEN
from flatout.cli.tune_stopped import unharmed
from flatout.doctor.paste.reader import read
from flatout.machine.machine_facts import Driver

FULL = Path("/dev/full")
COMMANDS = (["explain", "workers"], ["facts"], ["--help"])
TRAINS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(1000000):
    for (x,) in DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""
ENVIRONMENT = {**os.environ, "FLATOUT_LANG": "en"}


def started(arguments, **streams):
    line = [sys.executable, "-m", "flatout", *arguments]
    return subprocess.Popen(line, env=ENVIRONMENT, stdin=subprocess.DEVNULL, **streams)


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [*COMMANDS, ["doctor"]], ids=" ".join)
def test_a_full_disk_is_one_sentence(arguments):
    with FULL.open("wb") as full:
        process = started(arguments, stdout=full, stderr=subprocess.PIPE)
        said = process.communicate(timeout=60)[1].decode()
    assert (process.returncode, said) == (NOT_WRITTEN, "flatout: The output cannot be written: No space left on device.\n")


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_closed_pipe_is_no_fault_and_no_finding(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    process = started(arguments, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (process.communicate(timeout=60)[1], process.returncode) == (b"", NOT_WRITTEN)


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize(("arguments", "code"), [(["explain", "workers"], 0), (["explain", "no-such-page"], 2), (["nope"], 2)])
def test_nobody_to_tell_leaves_the_code_as_it_is(arguments, code):
    with FULL.open("wb") as full:
        assert started(arguments, stdout=subprocess.DEVNULL, stderr=full).wait(60) == code


@pytest.mark.skipif(os.name == "nt", reason="shells of POSIX")
def test_streams_that_were_closed_before_we_began():
    line = f"{sys.executable} -m flatout explain workers"
    closed = subprocess.run(["sh", "-c", f"{line} >&-"], env=ENVIRONMENT, capture_output=True, timeout=60)
    assert (closed.returncode, closed.stderr) == (NOT_WRITTEN, b"flatout: The output cannot be written: Bad file descriptor.\n")
    silent = subprocess.run(["sh", "-c", f"{line} 2>&-"], env=ENVIRONMENT, capture_output=True, timeout=60)
    assert silent.returncode == 0


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["table", "json"])
def test_a_run_ends_as_its_script_though_nothing_of_ours_can_be_written(flags, script, tmp_path):
    line = ["run", *flags, str(script("import sys; sys.exit(3)"))]
    with FULL.open("wb") as full:
        assert started(line, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=full).wait(60) == 3
        assert started(line, cwd=tmp_path, stdout=full, stderr=subprocess.DEVNULL).wait(60) == 3


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_a_search_whose_record_cannot_be_printed_is_not_told_of_a_full_disk(tmp_path, monkeypatch):
    """The disk of its records has room, and the record lies there."""
    said = []

    def search():
        write_record("{}")
        return 0

    with FULL.open("wb", buffering=0) as full:
        stdout = io.TextIOWrapper(full, write_through=True)
        monkeypatch.setattr(sys, "stdout", stdout)
        with pytest.raises(NotWrittenError):
            unharmed(search, tmp_path, "flatout tune", Words("en"), said.append)
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            stdout.detach()
    assert said == []


@pytest.mark.thorough
@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_what_a_search_would_try_cannot_be_printed(script, tmp_path):
    pytest.importorskip("torch")
    line = ["tune", "--dry-run", "--json", str(script(TRAINS))]
    with FULL.open("wb") as full:
        process = started(line, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE)
        said = process.communicate(timeout=120)[1].decode()
    assert process.returncode == NOT_WRITTEN
    assert said.endswith("flatout: The output cannot be written: No space left on device.\n")


def test_language_after_the_command(flatout, script):
    assert flatout("run", "--lang", "zh", "nope.py").stderr == "flatout: 没有脚本 nope.py。\n"
    assert flatout("--lang", "zh", "run", "--lang", "en", "nope.py").stderr == "flatout: There is no script nope.py.\n"
    assert "用法错误" in flatout("doctor", "--help", "--lang=zh").stdout.decode()
    assert flatout("explain", "nope", "--lang", "zh").stderr.startswith("flatout: 没有")
    path = script("import sys; print(sys.argv[1:])")
    theirs = flatout("run", "-q", path, "--lang", "zh")
    assert theirs.stdout == b"['--lang', 'zh']\n"


@pytest.mark.skipif(sys.platform != "linux", reason="file systems elsewhere refuse such names")
def test_names_that_are_not_utf8(flatout, tmp_path):
    """Observed all the same; in the record, and on the screen, the bytes stand as `\\xe9`."""
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    os.mkdir(folder)
    name = os.fsdecode(b"tr\xe9.py")
    Path(folder, name).write_text("print('trained')", encoding="utf-8")
    ended = flatout("run", name, cwd=folder)
    assert (ended.returncode, ended.stdout) == (0, b"trained\n")
    assert "Traceback" not in ended.stderr
    assert ended.summary["command"][1] == "tr\\xe9.py"
    asked = flatout("run", "--json", name, cwd=folder)
    assert json.loads(asked.stderr)["exit_code"] == 0
    told = flatout("doctor", os.path.join(folder, name))
    assert "tr\\xe9.py" in told.stdout.decode()
    assert told.stderr == ""
    assert flatout("run", os.path.join(folder, "nope")).stderr == f"flatout: There is no script {tmp_path}/caf\\xe9/nope.\n"


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="file systems elsewhere refuse such names")
def test_a_search_in_a_folder_whose_name_is_not_utf8(flatout, tmp_path):
    pytest.importorskip("torch")
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    os.mkdir(folder)
    name = os.fsdecode(b"tr\xe9.py")
    Path(folder, name).write_text(TRAINS, encoding="utf-8")
    ended = flatout("tune", "--no-parity", "--budget", "5s", "--json", name, cwd=folder)
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr
    assert "caf\\xe9/.flatout/runs/" in ended.stderr
    json.loads(ended.stdout)


@pytest.mark.parametrize("kind", ["facts", "paste"])
def test_what_a_terminal_would_obey_does_not_reach_it(kind, flatout, tmp_path):
    """From a file that somebody sent: colours, titles, and worse."""
    evil = "Tesla\x1b]0;title\x07\x1b[2J\x9b31m K80"
    text = f"PyTorch version: 2.4.1+cu121\nGPU models and configuration: GPU 0: NVIDIA {evil}\nNvidia driver version: 470.57\n"
    path = tmp_path / "given.txt"
    path.write_text(text, encoding="utf-8")
    if kind == "facts":
        found = read(text.replace(evil, "Tesla K80"))
        assert isinstance(found.driver, Driver)
        found.driver.gpus[0].name = evil
        path.write_bytes(records.encode(found))
    ended = flatout("doctor", "--verbose", "--from", "given.txt")
    shown = ended.stdout.decode() + ended.stderr
    assert "Tesla" in shown
    assert "Traceback" not in shown
    assert not set(shown) & {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160))}
