"""Front, reaper, child and workers killed by SIGKILL, singly and in pairs: nothing stays. And budgets that hold."""

import itertools
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from processes import gone, patient, slowness

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are told apart by what Linux says of them")

TRAINS = """
import sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(4096, 8))
if __name__ == "__main__":
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        for (x,) in DataLoader(data, batch_size=16, num_workers=2):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
"""
WHO = ("front", "reaper", "child", "worker")
PAIRS = [(one,) for one in WHO] + list(itertools.combinations(WHO, 2))
STAYS_S = 10.0


def everybody(front):
    """role -> processes of this search, by their parents and their words."""
    found = {"front": [front], "reaper": [], "child": [], "worker": []}
    for pid in below(front):
        words = command_of(pid)
        role = "reaper" if "last_watch.py" in words else "child" if "train.py" in words else None
        if role == "child" and any(other in found["child"] for other in ancestors(pid)):
            role = "worker"
        if role is not None:
            found[role].append(pid)
    return found


def below(pid):
    children = [int(name) for name in os.listdir("/proc") if name.isdigit() and parent_of(int(name)) == pid]
    return children + [inner for child in children for inner in below(child)]


def ancestors(pid):
    while (pid := parent_of(pid)) > 1:
        yield pid


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def one_round(folder, struck, after_s, protection):
    (folder / "train.py").write_text(TRAINS, encoding="utf-8")
    environment = {**os.environ, "FLATOUT_LANG": "en", "OMP_NUM_THREADS": "1", "FLATOUT_TRIALS": protection}
    line = [sys.executable, "-m", "flatout", "tune", "--no-parity", "--budget", f"{patient(6)}s", "train.py"]
    with (folder / "said.txt").open("ab") as said:
        front = subprocess.Popen(line, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    time.sleep(after_s)
    there = everybody(front.pid)
    for role in struck:
        for pid in there[role][:1]:
            os.kill(pid, signal.SIGKILL)
    if "front" not in struck:
        assert front.wait(patient(60)) in (0, 1), (folder / "said.txt").read_text()
    front.wait()
    end = time.monotonic() + STAYS_S * slowness()
    everyone = [pid for pids in there.values() for pid in pids if pid != front.pid]
    while left := [pid for pid in everyone if not gone(pid)] + of_this_search(folder):
        assert time.monotonic() < end, (struck, after_s, {pid: command_of(pid) for pid in left})
        time.sleep(0.05)
    return environment


def of_this_search(folder):
    """Whoever works in this folder still."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid() and not gone(int(name)):
            try:
                if os.readlink(f"/proc/{name}/cwd") == str(folder) and "train.py" in command_of(int(name)):
                    found.append(int(name))
            except OSError:
                continue
    return found


def goes_on(folder, environment):
    """A search of which anything was measured can be gone on with; the others say that there is nothing to go on from."""
    for place in (folder / ".flatout" / "runs").glob("*"):
        line = [sys.executable, "-m", "flatout", "tune", "--no-parity", "--resume", str(place), "train.py"]
        ended = subprocess.run(
            line, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=patient(90)
        )
        said = ended.stderr.decode()
        assert "Traceback" not in said
        assert ended.returncode == 0 or not (place / "tune.jsonl").exists(), said


@pytest.mark.parametrize("number", range(10))
def test_ten_rounds(number, tmp_path):
    """Half of them without an overlay, where no namespace of processes ends what is left."""
    struck = PAIRS[number]
    chance = random.Random(number)
    environment = one_round(tmp_path, struck, chance.uniform(0.3, 6.0) * slowness(), ("guard", "overlay")[number % 2])
    if number in (0, 5):
        goes_on(tmp_path, environment)


@pytest.mark.thorough
@pytest.mark.timeout(7200)
def test_a_hundred_rounds(tmp_path):
    chance = random.Random(8)
    for number in range(100):
        folder = tmp_path / str(number)
        folder.mkdir()
        struck, kind = PAIRS[number % len(PAIRS)], ("guard", "overlay")[number // len(PAIRS) % 2]
        goes_on(folder, one_round(folder, struck, chance.uniform(0.1, 8.0) * slowness(), kind))


ENDS = """
import os, sys, time, torch
if sys.argv[1] == "hangs-first":
    time.sleep(3600)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10**9):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    if step == 300 and sys.argv[1] == "hangs":
        time.sleep(3600)
    if step == 300 and sys.argv[1] == "dies":
        os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["hangs-first", "hangs", "dies"])
def test_five_seconds_are_no_more_than_fifteen(how, flatout, script):
    path = script(ENDS)
    began = time.monotonic()
    ended = flatout("tune", "--budget", "5s", "--no-parity", path.name, how)
    took = time.monotonic() - began
    assert "Traceback" not in ended.stderr
    assert took < 15.0 * slowness(), (took, ended.stderr)
