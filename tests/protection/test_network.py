"""A script that needs the network ends with the host's name; where it may use it, the addresses are listed."""

import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from conftest import QUIET

FETCHING = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=5).read())
"""


@pytest.fixture
def site():
    """A site on this machine, and who asked it."""
    asked = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"data")

        def log_message(self, *words):
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1], asked
    server.shutdown()
    server.server_close()


def tune(folder, *words):
    (folder / "train.py").write_text(FETCHING, encoding="ascii")
    command = [sys.executable, "-m", "flatout", "tune", *words]
    environ = {**os.environ, **QUIET, "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environ).stderr


def test_the_host_is_named_with_the_way_out(tmp_path):
    pytest.importorskip("torch")
    told = tune(tmp_path, "--dry-run", "train.py", "http://weights.example.org/resnet.pt")
    assert re.search(r"connects to weights\.example\.org, but trials have no network.*--allow-network", told), told


def test_addresses_are_listed_where_it_may(tmp_path, site):
    pytest.importorskip("torch")
    port, asked = site
    told = tune(tmp_path, "--allow-network", "--dry-run", "train.py", f"http://127.0.0.1:{port}/resnet.pt")
    assert asked == ["/resnet.pt"]
    assert "Trials may use the network" in told
    assert f"Network addresses that trials connected to from Python: 127.0.0.1:{port}" in told
