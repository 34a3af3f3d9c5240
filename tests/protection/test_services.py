"""What passes through to a trial, and what is turned off in it: CUDA's multi-process service, and trackers."""

import json
import os
import socket
import subprocess
import sys

import pytest

from flatout.base.words import LANGUAGES, Words
from flatout.launch.landlock import Landlock
from flatout.launch.trial_process import QUIET, TrialChild

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the service is Linux's")

# As a process that trains does: by the service's socket, and by shared memory.
JOINS = """
import os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as opened:
    opened.connect(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control")
    opened.sendall(b"joined")
for path in (os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/client", *sys.argv[1:]):
    with open(path, "w") as file:
        file.write("client")
"""


@pytest.fixture
def service(tmp_path):
    """A folder with a socket in it, as the service has, and what was sent to it."""
    folder = tmp_path / "mps"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(folder / "control"))
        server.listen()
        server.settimeout(20)

        def heard():
            with server.accept()[0] as connection:
                return connection.recv(10)

        yield folder, heard


def joins(held, folder, *paths):
    command = held.wrap([sys.executable, "-c", JOINS, *paths])
    environ = {**os.environ, **held.environ, "CUDA_MPS_PIPE_DIRECTORY": str(folder)}
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert (folder / "client").read_text(encoding="ascii") == "client"
    for language in LANGUAGES:
        assert all(Words(language)(f"tune-gap.{code}") for code in held.gaps)


def test_the_service_passes_through_an_overlay(tmp_path, overlay_for, service):
    folder, heard = service
    shared = f"/dev/shm/flatout-test-{os.getpid()}"
    held = overlay_for(tmp_path, CUDA_MPS_PIPE_DIRECTORY=str(folder))
    try:
        joins(held, folder, shared)
        assert heard() == b"joined"
        assert os.path.exists(shared)  # the service and its clients meet there
    finally:
        os.unlink(shared)
    assert "shared-memory" in held.gaps
    assert "shared-memory" not in overlay_for(tmp_path, CUDA_MPS_PIPE_DIRECTORY=str(tmp_path)).gaps


def test_the_service_passes_through_landlock(tmp_path, service):
    folder, heard = service
    environ = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(folder), "HOME": str(tmp_path)}
    with Landlock([tmp_path], environ) as held:
        if not held.ready:
            pytest.skip("no Landlock here")
        joins(held, folder)
        assert heard() == b"joined"
        assert "multi-process" in held.gaps
    with Landlock([tmp_path], {**environ, "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}) as held:
        assert "multi-process" not in held.gaps


def test_trackers_are_off_in_a_trial_whatever_the_user_has_set(tmp_path):
    environ = {**os.environ, "WANDB_MODE": "online", "MLFLOW_TRACKING_URI": "http://127.0.0.1:5000", "COMET_MODE": "online"}
    child = TrialChild([sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"], environ, tmp_path / "1")
    assert child.process.wait(60) == 0
    seen = json.loads((tmp_path / "1" / "output.txt").read_text(encoding="utf-8"))
    child.kill()
    assert {name: seen[name] for name in QUIET} == QUIET
    assert QUIET["WANDB_MODE"] == QUIET["COMET_MODE"] == QUIET["SWANLAB_MODE"] == "disabled"
    assert QUIET["MLFLOW_TRACKING_URI"] == ""
