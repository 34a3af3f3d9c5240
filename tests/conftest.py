"""What every test shares: a runner of the real command, and proof that a test leaves the environment as it was."""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import hypothesis
import pytest

from flatout.launch import overlay
from flatout.launch.overlay import Overlay

# A machine that others use as well stops for a quarter of a second now and then: that is no fault of what is tested.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"

# One thread: on a shared machine the threads of OpenMP wait for each other by spinning, for minutes.
QUIET = {"FLATOUT_LANG": "en", "OMP_NUM_THREADS": "1"}


def torch_version() -> tuple[int, ...]:
    """Of the torch that is installed, without importing it."""
    return tuple(int(part) for part in importlib.metadata.version("torch").split("+")[0].split(".")[:2])


def landlock_version() -> int:
    """Of this kernel, asked by the test itself: what asks it in flatout may be what is broken. 0 without it."""
    if sys.platform != "linux":
        return 0
    return max(0, int(ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint32(1))))


def read_again(path: str | Path) -> int:
    """Bytes that reading this file takes from the disk once it was taken out of the system's memory; 0: it stays in there.

    By the test's own calls, so that a test is left out for the file system's sake alone.
    """
    import resource

    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock
    subprocess.run([sys.executable, "-c", "import sys; open(sys.argv[1], 'rb').read()", path], check=True)
    return (resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock - before) * 512


@dataclass
class Ended:
    """A finished `flatout` command, and the record of its run where it made one."""

    returncode: int
    stdout: bytes
    stderr: str
    folder: Path

    @property
    def run_folder(self) -> Path:
        (found,) = (self.folder / ".flatout" / "runs").iterdir()
        return found

    @property
    def summary(self) -> dict:
        return json.loads((self.run_folder / "summary.json").read_text(encoding="utf-8"))


# Whole trainings, which take seconds each: begun first, so that nobody does the last of them alone.
LONG_FIRST = (
    "test_specimens",
    "test_styles",
    "test_compile",
    "test_batch_trials",
    "tests/run/",
    "tests/deep/",
    "tests/knobs/",
    "tests/tune/",
)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: next((rank for rank, part in enumerate(LONG_FIRST) if part in item.nodeid), len(LONG_FIRST)))


@pytest.fixture
def flatout(tmp_path):
    """Runs the real command in a folder of its own."""

    def run(*arguments, stdin=None, env=None, timeout=240, cwd=None) -> Ended:
        folder = Path(cwd or tmp_path)
        ended = subprocess.run(
            [sys.executable, "-m", "flatout", *map(str, arguments)],
            cwd=folder,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            env={**os.environ, **QUIET, **(env or {})},
            timeout=timeout,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr.decode("utf-8", "replace"), folder)

    return run


@pytest.fixture
def plain(tmp_path):
    """The same script under plain Python, in a folder of its own."""
    folder = tmp_path / "plain"
    folder.mkdir()

    def run(*arguments, stdin=None, env=None) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=folder,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            env={**os.environ, **QUIET, **(env or {})},
            timeout=240,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def forks():
    """A server of forks that have torch already; started when the first one is wanted."""
    from forks import Forks  # tests/run

    with ExitStack() as stack:
        yield cache(lambda: stack.enter_context(Forks()))


@pytest.fixture
def script(tmp_path):
    """Writes a script and gives its path."""

    def write(text: str, name: str = "train.py") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture(autouse=True)
def _leaves_no_trace():
    environment = dict(os.environ)
    threads = set(threading.enumerate())
    path = list(sys.path)
    yield
    changed = {name for name in environment.keys() | os.environ.keys() if environment.get(name) != os.environ.get(name)}
    # pytest's, and what torch sets for itself
    own = {"PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_PTXAS_PATH"}
    assert not changed - own, "a test changed the environment"
    assert sys.path == path, "a test changed sys.path"
    left = [thread for thread in threading.enumerate() if thread not in threads and not thread.daemon]
    assert not left, "a test left a thread running"


@pytest.fixture(params=["as it is", "user namespace"])
def overlay_for(request, monkeypatch, tmp_path):
    """Makes an overlay of everything for a home; skips where the system refuses it."""
    if request.param == "user namespace":
        if os.geteuid() != 0:
            pytest.skip("that is how it is already")
        all_of_them = overlay._ladder
        monkeypatch.setattr(overlay, "_ladder", lambda *words: (names for names in all_of_them(*words) if "user" in names))
    opened = []

    def make(home, allow_network=False, **environ):
        told = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": "", **environ}
        monkeypatch.chdir(home)
        opened.append(Overlay([sys.executable], [Path(home)], told, allow_network))
        if not opened[-1].__enter__().ready:
            pytest.skip("no overlays here")
        return opened[-1]

    yield make
    for one in opened:
        one.__exit__()
