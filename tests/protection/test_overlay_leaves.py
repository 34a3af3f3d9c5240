"""What would leave a trial: connections, signals, processes that outlive it. And what the start costs."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

KNOCK = """
import os, socket, sys
port, path = int(sys.argv[1]), sys.argv[2]
got = []
def knock(kind, address):
    try:
        with socket.socket(kind, socket.SOCK_STREAM) as knocking:
            knocking.settimeout(3)
            knocking.connect(address)
            knocking.sendall(b"secret")
            got.append(str(address))
    except OSError:
        pass
knock(socket.AF_INET, ("127.0.0.1", port))
knock(socket.AF_UNIX, path)
knock(socket.AF_UNIX, "\\0" + path)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as thrown:
    thrown.sendto(b"secret", ("127.0.0.1", port))
print(got)
"""

LOOPBACK = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    with socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        other.sendall(b"here")
        print(one.recv(4))
        other.close()
"""


class Listener:
    """Waits on this machine's loopback, on a path and on a name, and keeps what comes."""

    def __init__(self, path):
        self.got = []
        self.path = path
        self._servers = [socket.create_server(("127.0.0.1", 0))]
        self.port = self._servers[0].getsockname()[1]
        for name in (path, f"\0{path}"):
            self._servers.append(socket.socket(socket.AF_UNIX))
            self._servers[-1].bind(name)
            self._servers[-1].listen()
        self._letters = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._letters.bind(("127.0.0.1", self.port))
        for server in self._servers:
            threading.Thread(target=self._wait, args=(server,), daemon=True).start()

    def _wait(self, server):
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                self.got.append(connection.recv(10))

    def letters(self):
        self._letters.setblocking(False)
        try:
            return self._letters.recv(10)
        except BlockingIOError:
            return b""

    def close(self):
        for server in (*self._servers, self._letters):
            if server.type is socket.SOCK_STREAM:
                server.shutdown(socket.SHUT_RDWR)
            server.close()


@pytest.fixture
def listener(tmp_path):
    made = Listener(str(tmp_path / "agent.socket"))
    yield made
    made.close()


def run(overlay, *command):
    return subprocess.run(overlay.wrap(command), capture_output=True, text=True, check=False)


def test_no_byte_leaves_without_leave(tmp_path, overlay_for, listener):
    overlay = overlay_for(tmp_path)
    if "network" in overlay.gaps:
        pytest.skip("no namespace of the network here")
    ended = run(overlay, sys.executable, "-c", KNOCK, str(listener.port), listener.path)
    assert ended.stdout == "[]\n", ended.stderr
    assert (listener.got, listener.letters()) == ([], b"")
    assert run(overlay, sys.executable, "-c", LOOPBACK).stdout == "b'here'\n"


def test_with_leave_they_arrive(tmp_path, overlay_for, listener):
    ended = run(overlay_for(tmp_path, allow_network=True), sys.executable, "-c", KNOCK, str(listener.port), listener.path)
    assert f"('127.0.0.1', {listener.port})" in ended.stdout
    assert listener.path not in ended.stdout.replace(f"\\x00{listener.path}", "")  # other programs' sockets stay hidden
    assert b"secret" in listener.got
    assert listener.letters() == b"secret"


@pytest.mark.parametrize("overlay_for", ["as it is"], indirect=True)  # the ways into an overlay differ by rights alone
def test_torch_talks_to_itself(tmp_path, overlay_for):
    pytest.importorskip("torch")
    text = """
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29511", rank=0, world_size=1)
one = torch.ones(2)
dist.all_reduce(one)
print(one.tolist())
dist.destroy_process_group()
"""
    ended = run(overlay_for(tmp_path), sys.executable, "-c", text)
    assert ended.stdout == "[1.0, 1.0]\n", ended.stderr


def test_others_cannot_be_signalled_and_nothing_outlives_it(tmp_path, overlay_for):
    overlay = overlay_for(tmp_path)
    if "processes" in overlay.gaps:
        pytest.skip("no namespace of processes here")
    text = """
import os, sys, time
for pid in map(int, sys.argv[1:]):
    try:
        os.kill(pid, 15)
    except ProcessLookupError:
        print("not there")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
os.wait()
"""
    other = subprocess.Popen(["sleep", "1000"])
    try:
        began = time.monotonic()
        ended = run(overlay, sys.executable, "-c", text, str(other.pid))
        assert ended.stdout == "not there\n", ended.stderr
        assert time.monotonic() - began < 100  # the daemon holds the pipe: it is gone, or this would not have ended
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


FRONT = """
import os, subprocess, sys
from pathlib import Path
from flatout.launch.overlay import Overlay
with Overlay([sys.executable], [Path.cwd()], dict(os.environ), False) as overlay:
    words = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(1000)", sys.argv[1]]
    child = subprocess.Popen(overlay.wrap(words), start_new_session=True)
    child.wait()
"""


def test_a_trial_dies_with_its_front_without_anybodys_help(tmp_path, overlay_for):
    overlay_for(tmp_path)  # or it is skipped
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    front = subprocess.Popen([sys.executable, "-c", FRONT, mark], stdout=subprocess.PIPE, cwd=tmp_path)
    assert front.stdout.readline()
    assert marked(mark) > 1
    front.send_signal(signal.SIGKILL)
    front.wait()
    front.stdout.close()
    end = time.monotonic() + 10
    while marked(mark) and time.monotonic() < end:
        time.sleep(0.05)
    assert marked(mark) == 0


def marked(mark):
    """How many living processes have this word on their command line."""
    ps = subprocess.run(["ps", "-eww", "-o", "stat=,args="], capture_output=True, text=True, check=True)
    return sum(mark in line and not line.startswith("Z") for line in ps.stdout.splitlines())


@pytest.mark.calm
def test_what_a_start_costs(tmp_path, overlay_for):
    overlay = overlay_for(tmp_path)

    def best(wrapped):
        times = []
        for _ in range(5):
            command = overlay.wrap(["true"]) if wrapped else ["true"]
            began = time.perf_counter()
            subprocess.run(command, check=True)
            times.append(time.perf_counter() - began)
        return min(times)

    assert best(True) - best(False) < 0.3
