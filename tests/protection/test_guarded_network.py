"""Where trials have no namespace of the network: nothing that is sent arrives, and for whom it was is named."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="of other systems it is not known who listens")

SENDS = """
import asyncio, os, smtplib, socket, subprocess, sys, urllib.request
port, udp = int(sys.argv[1]), int(sys.argv[2])

def attempt(name, call):
    try:
        call()
        print("sent", name)
    except Exception as error:
        print("kept", name, type(error).__name__, error)

def plain():
    with socket.create_connection(("127.0.0.1", port), 5) as opened:
        opened.sendall(b"plain")

def datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.sendto(b"datagram", ("127.0.0.1", udp))

def connected():
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as opened:
        opened.connect(("::1", udp))
        opened.send(b"connected")

def message():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.sendmsg([b"message"], [], 0, ("127.0.0.1", udp))

def program():
    code = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5).sendall(b'program')"
    subprocess.run([sys.executable, "-I", "-S", "-c", code, str(port)], check=True, stderr=subprocess.DEVNULL)

attempt("plain", plain)
attempt("by name", lambda: socket.create_connection(("localhost", port), 5).sendall(b"name"))
for send in (datagram, connected, message):
    attempt(send.__name__, send)
attempt("look back", lambda: socket.gethostbyaddr("192.0.2.2"))
attempt("look back for a name", lambda: socket.getnameinfo(("192.0.2.3", 80), 0))
attempt("the machine's host", lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).connect((2, 9)))
attempt("upload", lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/upload", data=b"upload", timeout=1))
attempt("mail", lambda: smtplib.SMTP("127.0.0.1", port, timeout=1))
attempt("asyncio", lambda: asyncio.run(asyncio.open_connection("127.0.0.1", port)))
attempt("elsewhere", lambda: socket.create_connection(("192.0.2.1", 80), 1))
attempt("look-up", lambda: socket.getaddrinfo("huggingface.co", 443))
if "program" in sys.argv:
    attempt("program", program)
# Among the trial's own processes it must work; Landlock knows the one port over which a training's processes meet.
server = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))
with socket.create_connection(server.getsockname(), 5) as opened:
    opened.sendall(b"own")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
    here.bind(("127.0.0.1", 0))
    there.sendto(b"!", here.getsockname())
    assert here.recv(3) == b"!"
socket.getfqdn()
print("own", server.accept()[0].recv(3))
"""


class Listener:
    """A server that notes what arrives."""

    def __init__(self):
        self.got = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self._datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self._datagrams.bind(("::", 0))  # as statsd and syslog listen: no TCP on that port
        self.udp = self._datagrams.getsockname()[1]
        for work in (self._accept, self._receive):
            threading.Thread(target=work, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(1)
                try:
                    self.got.append(connection.recv(100))
                except OSError:
                    self.got.append(b"")

    def _receive(self):
        while True:
            try:
                self.got.append(self._datagrams.recv(100))
            except OSError:
                return

    def close(self):
        self._server.close()
        self._datagrams.close()


@pytest.fixture
def listener():
    listener = Listener()
    yield listener
    listener.close()


def sent(listener, tmp_path, kind, *more, allowed=False):
    (tmp_path / "sends.py").write_text(SENDS, encoding="ascii")
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with socket.create_server(("127.0.0.1", 0)) as free:
        environ["MASTER_PORT"] = str(free.getsockname()[1])
    environ.update({"TRY_NETWORK": "1"} if allowed else {})
    line = [sys.executable, str(HERE / "trial_under.py"), kind, "sends.py", str(listener.port), str(listener.udp), *more]
    ended = subprocess.run(line, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    if "cannot be used on this system" in ended.stderr:
        pytest.skip(f"no {kind} here")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert "own b'own'" in told["output"], told["output"]
    return told


@pytest.mark.parametrize("kind", ["landlock", "guard"])
def test_nothing_is_sent(listener, tmp_path, kind):
    program = ["program"] if kind == "landlock" else []  # of the guard it is a gap: `guard-network`
    told = sent(listener, tmp_path, kind, *program)
    assert listener.got == []
    assert "sent" not in told["output"]
    assert "flatout: a trial has no network" in told["output"]
    assert "192.0.2.1:80" in told["reached_for"]
    assert "huggingface.co" in told["reached_for"]
    assert f"127.0.0.1:{listener.port}" in told["reached_for"]
    assert {f"127.0.0.1:{listener.udp}", f"::1:{listener.udp}", "192.0.2.2", "192.0.2.3"} <= set(told["reached_for"])


@pytest.mark.parametrize("kind", ["landlock", "guard"])
def test_with_leave_the_addresses_are_told(listener, tmp_path, kind):
    told = sent(listener, tmp_path, kind, allowed=True)
    assert {b"plain", b"datagram", b"connected", b"message"} <= set(listener.got)
    assert f"127.0.0.1:{listener.port}" in told["hosts"]
    assert "192.0.2.1:80" in told["hosts"]
    assert "landlock-datagrams" not in told["gaps"]
    assert "guard-network" not in told["gaps"]


# As on macOS and Windows, where no table tells who listens.
UNKNOWN = """
import asyncio, os, socket, subprocess, sys
from _flatout_agent.protection import network_guard, own_ports
own_ports.TABLES = {"tcp": ("/nowhere/tcp", "/nowhere/tcp6")}
network_guard.put_on({"folder": sys.argv[1], "network": False})
if len(sys.argv) > 3:
    socket.create_connection(("127.0.0.1", int(sys.argv[3])), 5).sendall(b"child")
    sys.exit()
for port in sys.argv[2].split():
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            socket.socket(socket.AF_INET, kind).connect(("127.0.0.1", int(port)))
            print("sent")
        except OSError as error:
            assert "no network" in str(error), error
with socket.create_server(("127.0.0.1", 0)) as server:
    port = str(server.getsockname()[1])
    subprocess.run([sys.executable, __file__, *sys.argv[1:3], port], check=True)
    print(server.accept()[0].recv(5))

async def main():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    await asyncio.open_connection(*server.sockets[0].getsockname())

asyncio.run(main())
print("the end")
"""


def test_where_nobody_tells_who_listens_only_the_trials_own_ports_are_reached(listener, tmp_path):
    (tmp_path / "unknown.py").write_text(UNKNOWN, encoding="ascii")
    (tmp_path / "own").mkdir()
    line = [sys.executable, "unknown.py", str(tmp_path / "own"), f"{listener.port} {listener.udp}"]
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    ended = subprocess.run(line, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert ended.stdout == "b'child'\nthe end\n", ended.stderr
    assert listener.got == []
