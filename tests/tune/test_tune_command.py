"""`flatout tune` with real processes: a script that a knob really helps, files that must survive, kills and restarts."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")

from conftest import QUIET

# Loading sleeps, so that workers help on any machine. It also deletes and overwrites what lies around, as scripts do.
SLEEPY = """
import os, shutil, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Sleepy(Dataset):
    def __len__(self):
        return int(os.environ.get("SLEEPY_SAMPLES", "4000"))
    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.full((8,), float(index % 7)), index % 3

if __name__ == "__main__":
    shutil.rmtree("out", ignore_errors=True)
    os.makedirs("out")
    with open("log.txt", "w") as log:
        log.write("begun again")
    torch.manual_seed(0)
    net = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for epoch in range(int(sys.argv[1])):
        for x, y in DataLoader(Sleepy(), batch_size=8, shuffle=True):
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad(); loss.backward(); optimizer.step()
        torch.save(net.state_dict(), "out/last.pt")
"""


@pytest.fixture
def place(tmp_path, script):
    path = script(SLEEPY)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious.pt").write_bytes(b"weights of last week")
    (tmp_path / "log.txt").write_text("the whole story", encoding="utf-8")
    return path


def untouched(folder):
    assert (folder / "out" / "precious.pt").read_bytes() == b"weights of last week"
    assert (folder / "log.txt").read_text(encoding="utf-8") == "the whole story"
    assert sorted(os.listdir(folder / "out")) == ["precious.pt"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--budget", "soon"], "soon"),
        (["--only", "precison"], "precison"),
        (["--only", "workers,precison"], "precison"),
        (["--allow", "everything"], "everything"),
        (["--resume", "nowhere"], "nowhere"),
        (["--resume", "."], "tune.jsonl"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments, words, flatout, script):
    ended = flatout("tune", *arguments, script("pass"))
    assert ended.returncode == 2
    assert words in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


@pytest.mark.calm
def test_killed_and_resumed_what_helps_is_kept_and_nothing_is_touched(place, flatout, tmp_path):
    """kill -9 of the front: its child goes too, and the search goes on where it was."""
    command = [sys.executable, "-m", "flatout", "tune", "--budget", "80s", "--only", "workers", str(place), "3"]
    first = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **QUIET}, stderr=subprocess.DEVNULL)
    journal = wait_for_segments(tmp_path, 3)
    first.send_signal(signal.SIGKILL)
    first.wait()
    ended = flatout("tune", "--resume", journal.parent, "--json", place, "3", timeout=150)
    assert ended.returncode == 0, ended.stderr
    end = json.loads(ended.stdout)
    assert end["ending"] == "tuned", ended.stderr
    assert int(end["profile"]["workers"]) >= 2
    assert end["lower"] > 1.05, ended.stderr
    assert "workers" in ended.stderr
    lines = [json.loads(line) for line in journal.read_text(encoding="ascii").splitlines()]
    numbers = [line["result"]["id"] for line in lines if line.get("result")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert "workers = " in (tmp_path / "flatout.toml").read_text(encoding="utf-8")
    untouched(tmp_path)
    run = flatout("run", "--json", place, "1", env={"SLEEPY_SAMPLES": "800"})
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stderr[run.stderr.index("{") :])["knobs"], run.stderr


def wait_for_segments(folder, count, seconds=90):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for journal in folder.glob(".flatout/runs/*/tune.jsonl"):
            if journal.read_text(encoding="ascii").count('"result":{') >= count:
                return journal
        time.sleep(0.2)
    raise AssertionError("no segments came")
