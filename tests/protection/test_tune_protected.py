"""`flatout tune` with a script that writes where such scripts do: its own trials change nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from planted_files import Homes

from conftest import QUIET
from flatout.launch import changed_files
from flatout.launch.python_guard import Guard

TRAIN = """
import csv, os, shutil, sys
from pathlib import Path
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
here = Path(__file__).resolve().parent
for home in map(Path, sys.argv[1:]):
    shutil.rmtree(home / "outputs")
    (home / "outputs").mkdir()
    (home / "checkpoints" / "last.pt").write_bytes(b"new")
    csv.writer(open(home / "results.csv", "w")).writerow([1, 2])
    (home / "new.txt").write_text("new")
Path(os.path.expanduser("~/log.txt")).write_text("new")
(here.parent / "outputs" / "best.pt").write_bytes(b"new")
data, net = TensorDataset(torch.randn(4000, 8), torch.zeros(4000)), nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(20):
    for x, y in DataLoader(data, batch_size=4):
        loss = (net(x)[:, 0] - y).pow(2).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


@pytest.mark.parametrize("overlay_for", ["as it is"], indirect=True)
def test_a_dry_run_changes_nothing(tmp_path, overlay_for):
    pytest.importorskip("torch")
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "best.pt").write_bytes(b"mine")
    (project / "train.py").write_text(TRAIN, encoding="ascii")
    overlay_for(project)  # or it is skipped
    homes = Homes(tmp_path / "home")
    command = [sys.executable, "-m", "flatout", "tune", "--dry-run", "--json", "train.py", *map(str, homes.folders)]
    environ = {**os.environ, **QUIET, "HOME": str(homes.folders[0]), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    try:
        ended = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, env=environ)
        assert ended.returncode == 0, ended.stderr
        assert json.loads(ended.stdout)["would_try"]
        held, network = ended.stderr.splitlines()[:2]
        assert held.startswith("Your files are safe: trials see a copy-on-write view")
        assert "no network" in network
        homes.unchanged()
        assert (tmp_path / "outputs" / "best.pt").read_bytes() == b"mine"
    finally:
        homes.remove()


QUICK = """
import torch
net = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    net(torch.randn(16, 8)).sum().backward()
    optimizer.step()
"""
SHELL_LINES = ["{} > log.txt 2>&1", "{} 2>&1 | tee log.txt"]


@pytest.mark.thorough
@pytest.mark.parametrize("line", SHELL_LINES)
@pytest.mark.parametrize("kind", ["guard", "landlock"])
@pytest.mark.skipif(sys.platform != "linux", reason="what a pipeline has open, Linux tells")
def test_what_is_written_to_by_the_command_itself_no_trial_has_changed(kind, line, script, tmp_path):
    pytest.importorskip("torch")
    script(QUICK)
    (tmp_path / "log.txt").write_text("of before")
    command = f"{sys.executable} -m flatout tune --no-parity --budget 4s train.py"
    environ = {**os.environ, **QUIET, "FLATOUT_TRIALS": kind}
    piped = ["bash", "-o", "pipefail", "-c", line.format(command)]  # the exit code of tune, not that of tee
    ended = subprocess.run(piped, cwd=tmp_path, env=environ, check=False, start_new_session=True)
    said = " ".join((tmp_path / "log.txt").read_text().split())
    assert ended.returncode == 0, said
    assert "the protection of your files did not prevent it" not in said


@pytest.mark.skipif(sys.platform != "linux", reason="what a pipeline has open, Linux tells")
def test_a_file_that_the_pipeline_has_open_is_its_own(tmp_path):
    log, other = tmp_path / "log.txt", tmp_path / "results.csv"
    log.write_text("of before")
    other.write_text("of before")
    with (
        Guard([tmp_path], os.environ) as guarding,
        subprocess.Popen(["tee", log], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as tee,
    ):
        tee.stdin.write(b"said")
        tee.stdin.flush()
        while log.read_text() != "said":
            pass
        assert guarding.changed() == []
        other.write_text("of a trial")
        assert guarding.changed() == [other]
        tee.stdin.close()
        tee.wait()
        assert set(guarding.changed()) == {log, other}


HOLDS = """
import sys
from multiprocessing import shared_memory
block = shared_memory.SharedMemory(create=True, size=64)
print(block.name, flush=True)
sys.stdin.read()
block.close()
block.unlink()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what a program has in its memory, Linux tells")
def test_shared_memory_of_a_living_program_is_its_own(tmp_path, monkeypatch):
    """It may lie there for hours, and goes with that program."""
    monkeypatch.setattr(changed_files, "DORMANT_S", 0.0)
    left = Path("/dev/shm") / f"flatout-test-{os.getpid()}"
    semaphore = left.with_name(f"sem.{left.name}")  # of a program that was killed; a tracker removes it later
    left.write_text("somebody's")
    semaphore.write_bytes(bytes(32))
    try:
        with subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            held = Path("/dev/shm") / holder.stdout.readline().decode().strip()
            with Guard([tmp_path], os.environ) as guarding:
                assert held.exists()
                holder.stdin.close()
                assert holder.wait() == 0
                assert not held.exists()
                assert held not in guarding.changed()
                semaphore.unlink()
                assert semaphore not in guarding.changed()
                left.unlink()
                assert left in guarding.changed()
    finally:
        left.unlink(missing_ok=True)
        semaphore.unlink(missing_ok=True)
