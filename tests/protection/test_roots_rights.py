"""What root's rights would reach around a protection with: they are taken away."""

import os
import subprocess
import sys

import pytest

from flatout.launch import landlock_start, overlay
from flatout.launch.inside import start
from flatout.launch.landlock import Landlock
from flatout.launch.overlay import Overlay

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has them"),
    pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="others have no such rights"),
]

# Words: the file to spoil, and a folder on the same disk that the trial sees as it is.
REACHES = """
import ctypes, os, signal, stat, struct, sys
path, seen = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)

def attempt(name, call):
    try:
        if call() == -1:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        print("done", name)
    except OSError as error:
        print("kept", name, error)

def by_the_first_process():
    with open("/proc/1/root" + path, "r+") as file:
        file.write("gone")

def by_its_handle():
    handle = (ctypes.c_char * 128).from_buffer_copy(bytes.fromhex(os.environ["HANDLE"]).ljust(128, b"\\0"))
    folder = os.open(seen, os.O_RDONLY)
    descriptor = libc.open_by_handle_at(folder, handle, os.O_RDWR)
    if descriptor == -1:
        return -1
    os.write(descriptor, b"gone")

def disk():
    os.mknod("disk", stat.S_IFBLK | 0o600, os.makedev(7, 0))

attempt("first process", by_the_first_process)
attempt("handle", by_its_handle)
attempt("disk", disk)
attempt("mount", lambda: libc.mount(b"x", b"/mnt", b"tmpfs", 0, None))
attempt("clock", lambda: libc.settimeofday(struct.pack("ll", 1, 0), None))
attempt("packets", lambda: __import__("socket").socket(17, 3, 0))
"""


def handle_of(path):
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    handle, mount = ctypes.create_string_buffer(136), ctypes.c_int()
    handle[:4] = (128).to_bytes(4, sys.byteorder)
    if libc.name_to_handle_at(-100, os.fsencode(path), handle, ctypes.byref(mount), 0) == -1:
        pytest.skip("this file system gives no handles")
    return handle.raw.hex()


def reached(held, path, seen):
    command = held.wrap([sys.executable, "-c", REACHES, str(path), str(seen)])
    ended = subprocess.run(
        command,
        cwd=seen,
        env={**os.environ, **held.environ, "HANDLE": handle_of(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return [line.split(None, 1)[1] for line in ended.stdout.splitlines() if line.startswith("done")]


@pytest.fixture
def kept(tmp_path):
    (tmp_path / "kept").write_text("kept", encoding="ascii")
    yield tmp_path / "kept"
    assert (tmp_path / "kept").read_text(encoding="ascii") == "kept"


def test_under_landlock(tmp_path, kept):
    with Landlock([tmp_path], {**os.environ, "HOME": str(tmp_path)}) as held:
        if not held.ready:
            pytest.skip("no Landlock here")
        assert reached(held, kept, held.above[0] / "t") == []


@pytest.mark.parametrize("left_out", [(), ("pid",), ("pid", "ipc")])
def test_under_an_overlay(tmp_path, kept, left_out, monkeypatch):
    names = [name for name in ("mount", "pid", "ipc", "net") if name not in left_out]
    monkeypatch.setattr(overlay, "_ladder", lambda *words: iter([names]))
    monkeypatch.chdir(tmp_path)
    seen = tmp_path / "shared"
    seen.mkdir()
    with Overlay([sys.executable], [tmp_path], {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": ""}, False) as held:
        if not held.ready:
            pytest.skip("no overlays here")
        held.share(seen)
        assert set(reached(held, kept, seen)) <= {"packets"}  # of its own network
        codes = {"pid": "processes", "ipc": "messages"}
        assert {codes[name] for name in left_out} <= set(held.gaps)


def test_both_take_the_same_away():
    assert landlock_start.DROPPED == start.DROPPED
