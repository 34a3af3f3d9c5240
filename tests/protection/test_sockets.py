"""Sockets of other programs on this machine act outside a trial: Python's are refused in every kind, the rest is named."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from _flatout_agent.wire import NO_SOCKETS
from flatout.base.words import LANGUAGES, Words
from flatout.launch.trial_messages import network_limit

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names without a path are Linux's")

SENDS = """
import os, socket, subprocess, sys, tempfile

def send(address):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as opened:
        opened.connect(address)
        opened.sendall(b"sent")

for address in ("socket", sys.argv[1], "\\0" + sys.argv[2]):
    try:
        send(address)
        print("sent", address)
    except OSError as error:
        print("kept", error)

def of_our_own(address):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(address)
        server.listen()
        code = "import socket, sys; socket.socket(socket.AF_UNIX).connect(bytes.fromhex(sys.argv[1]).decode())"
        subprocess.run([sys.executable, "-c", code, address.encode().hex()], check=True)
        server.accept()

of_our_own("\\0" + sys.argv[2] + "-own")
of_our_own(os.path.join(tempfile.mkdtemp(), "own"))
print("the end")
"""


@pytest.fixture
def servers(tmp_path):
    """One with a path, one without, and what they got."""
    got, name = [], f"flatout-test-{os.getpid()}"
    opened = []

    def serve(server):
        while True:
            try:
                with server.accept()[0] as connection:
                    got.append(connection.recv(10))
            except OSError:
                return

    for address in (str(tmp_path / "socket"), f"\0{name}"):
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(address)
        server.listen()
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        opened.append(server)
    yield name, got
    for server in opened:
        server.shutdown(socket.SHUT_RDWR)  # whoever waits for it wakes up
        server.close()


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("kind", ["overlay", "landlock", "guard"])
def test_they_are_not_reached_from_python(servers, tmp_path, kind, allowed):
    name, got = servers
    (tmp_path / "sends.py").write_text(SENDS, encoding="ascii")
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environ.update({"TRY_NETWORK": "1"} if allowed else {})
    line = [sys.executable, str(HERE / "trial_under.py"), kind, "sends.py", str(tmp_path / "socket"), name]
    ended = subprocess.run(line, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    if "cannot be used on this system" in ended.stderr:
        pytest.skip(f"no {kind} here")
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["output"].endswith("the end\n"), told["output"]
    assert got == []
    if kind == "overlay":
        assert ("abstract-sockets" in told["gaps"]) is allowed
    else:
        assert "sockets" in told["gaps"]
        assert {str(tmp_path / "socket"), f"@{name}"} <= set(told["reached_for"])
    for language in LANGUAGES:
        assert all(Words(language)(f"tune-gap.{code}") for code in told["gaps"])
        assert Words(language)("tune-nothing.no-socket", path="/run/docker.sock")


def test_it_is_not_called_the_scripts_fault():
    said = f"ConnectionRefusedError: [Errno 111] {NO_SOCKETS}: '/run/docker.sock'"
    assert network_limit(["/run/docker.sock"], said) == ("no-socket", {"path": "/run/docker.sock"})
    assert network_limit([], said) is None
    assert network_limit(["/run/docker.sock"], "ConnectionRefusedError: [Errno 111] Connection refused") is None
