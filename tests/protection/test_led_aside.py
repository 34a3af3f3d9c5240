"""The view that trials have of the files under the guard: what they wrote is there for them, and for nobody else."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flatout.launch.python_guard import Guard

SOURCE = Path(__file__).resolve().parents[2] / "src"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there, nothing is led aside")

BEGIN = """
import json, sys
from _flatout_agent.protection import write_guard
write_guard.put_on(json.loads(sys.argv[1])["write_guard"])
import errno, glob, os, pathlib, pickle, shutil
"""


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    (home / "out" / "inner").mkdir(parents=True)
    (home / "out" / "kept.bin").write_bytes(b"kept")
    (home / "kept.txt").write_text("kept", encoding="ascii")
    (home / "way").symlink_to("out")
    return home


@pytest.fixture
def guard(home):
    with Guard([home], {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}) as guard:
        yield guard


def trial(guard, home, code, *words, python=sys.executable):
    guard.wrap([])
    line = [python, "-c", BEGIN + code, json.dumps(guard.job), *words]
    environ = {**os.environ, **guard.environ, "PYTHONPATH": str(SOURCE)}
    ended = subprocess.run(line, cwd=home, env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if ".cache" not in path.parts)


def test_what_was_written_is_read_again(guard, home):
    before = names(home)
    trial(
        guard,
        home,
        """
with open("kept.txt", "a") as file:
    file.write(" and more")
assert file.name == "kept.txt"
assert open("kept.txt").read() == "kept and more" and os.path.getsize("kept.txt") == 13
os.makedirs("out/runs/1")
pathlib.Path("out/runs/1/log").write_text("log")
assert sorted(os.listdir("out")) == sorted(os.listdir("way")) == ["inner", "kept.bin", "runs"]
assert [str(path) for path in pathlib.Path("way").rglob("log")] == ["way/runs/1/log"]
assert glob.glob("out/*/*/*") == ["out/runs/1/log"]
os.chdir("out/runs/1")
assert os.getcwd().endswith("/home/out/runs/1") and open("../../kept.bin").read() == "kept"
assert os.path.realpath("log") == os.getcwd() + "/log"
""",
    )
    assert names(home) == before
    assert (home / "kept.txt").read_text(encoding="ascii") == "kept"


def test_what_was_removed_is_gone_and_a_new_one_is_empty(guard, home):
    before = names(home)
    trial(
        guard,
        home,
        """
shutil.rmtree("out")
assert not os.path.exists("out/kept.bin") and not os.path.exists("out")
assert sorted(set(os.listdir()) - {".cache"}) == ["kept.txt", "way"]
try:
    open("out/kept.bin")
except FileNotFoundError as error:
    assert error.filename == "out/kept.bin"
os.mkdir("out")
assert os.listdir("out") == [] and not os.path.exists("out/inner")
os.rename("kept.txt", "out/moved.txt")
assert not os.path.exists("kept.txt") and open("way/moved.txt").read() == "kept"
""",
    )
    assert names(home) == before


def test_a_folder_with_all_that_is_in_it_is_renamed(guard, home):
    before = names(home)
    trial(
        guard,
        home,
        """
os.rename("out", "old")
assert open("old/kept.bin").read() == "kept" and os.path.isdir("old/inner") and not os.path.exists("out")
os.mkdir("filled")
open("filled/x", "w").close()
try:
    os.rename("old", "filled")
except OSError as error:
    assert error.errno == errno.ENOTEMPTY
""",
    )
    assert names(home) == before


def test_errors_are_those_of_the_system(guard, home):
    told = trial(
        guard,
        home,
        """
def told(call, *args):
    try:
        call(*args)
    except OSError as error:
        print(type(error).__name__, error.errno, error.filename)
told(open, "nowhere/x", "w")
told(open, "kept.txt", "x")
told(open, "out", "w")
told(os.mkdir, "out")
told(os.rmdir, "out")
told(os.remove, "out")
told(os.remove, "nothing")
told(os.rmdir, "kept.txt")
told(os.listdir, "kept.txt")
told(os.symlink, "a", "kept.txt")
told(os.stat, "nothing")
""",
    )
    plain = subprocess.run(
        [sys.executable, "-c", told_plainly(), str(home)], capture_output=True, text=True, check=True, cwd=home
    ).stdout
    assert told.splitlines() == plain.splitlines()


def told_plainly():
    return """
import os
def told(call, *args):
    try:
        call(*args)
    except OSError as error:
        print(type(error).__name__, error.errno, error.filename)
told(open, "nowhere/x", "w")
told(open, "kept.txt", "x")
told(open, "out", "w")
told(os.mkdir, "out")
told(os.rmdir, "out")
told(os.remove, "out")
told(os.remove, "nothing")
told(os.rmdir, "kept.txt")
told(os.listdir, "kept.txt")
told(os.symlink, "a", "kept.txt")
told(os.stat, "nothing")
"""


def test_functions_stay_what_they_were(guard, home):
    trial(
        guard,
        home,
        """
import inspect, io
assert pickle.loads(pickle.dumps(open)) is open is io.open and pickle.loads(pickle.dumps(os.stat)) is os.stat
assert os.open in os.supports_dir_fd and os.stat.__name__ == "stat"
class Held:
    look = os.stat
assert Held().look(".")
assert str(inspect.signature(os.mkdir)) == "(path, mode=511, *, dir_fd=None)"
""",
    )


def test_downloads_last_one_search_and_nothing_else_does(guard, home):
    trial(
        guard,
        home,
        "os.makedirs(sys.argv[2] + '/hub'); open(sys.argv[2] + '/hub/w', 'w').write('w'); open('x', 'w')",
        *cache(home),
    )
    trial(guard, home, "assert open(sys.argv[2] + '/hub/w').read() == 'w' and not os.path.exists('x')", *cache(home))
    assert not (home / ".cache" / "hub").exists()


def cache(home):
    return [str(home / ".cache")]


def test_a_fault_in_putting_it_on_ends_the_process(guard, home):
    job = {"write_guard": {**guard.job["write_guard"], "folder": str(home / "nowhere" / "\0")}}
    line = [sys.executable, "-c", BEGIN + "print('went on')", json.dumps(job)]
    ended = subprocess.run(line, env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (96, "")


def test_many_reads_are_hardly_slower(guard, home):
    """Loose on purpose: a folder that is as it was is not looked at anew for each of its files."""
    told = trial(
        guard,
        home,
        """
import time
open("new.txt", "w").close()
for number in range(200):
    open(f"out/{number}", "w").close() if number < 0 else None
def took(call):
    best = 9.0
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(2000):
            call("out/kept.bin").close()
        best = min(best, time.perf_counter() - began)
    return best
print(took(open) / took(open.__wrapped__))
""",
    )
    assert float(told) < 3


def test_programs_that_harm_nothing_are_started(guard, home):
    told = trial(
        guard,
        home,
        """
import subprocess
def attempt(line, **more):
    try:
        subprocess.run(line, capture_output=True, check=True, **more)
        print("started", line)
    except PermissionError as error:
        print("refused", line)
attempt([sys.executable, "-c", "print(1 > 0, 'cp')"])
attempt(["git", "--version"])
attempt("echo rmdir-like 2>&1 > /dev/null", shell=True)
attempt("echo a > log.txt", shell=True)
attempt(["bash", "-c", "true; rm -f x"])
attempt(["env", "rm", "-f", "x"])
attempt("/bin/rm -f x", shell=True)
attempt(["mv", "a", "b"])
""",
    )
    assert [line.split()[0] for line in told.splitlines()] == ["started"] * 3 + ["refused"] * 5


def test_a_link_in_the_place_of_a_folder_leads_elsewhere_at_once(guard, home):
    trial(
        guard,
        home,
        """
os.mkdir("latest")
open("latest/a", "w").write("a")
shutil.rmtree("latest")
os.symlink("out", "latest")
assert open("latest/kept.bin").read() == "kept" and os.path.realpath("latest").endswith("/home/out")
""",
    )


def test_a_database_is_attached_to_none_of_the_users(guard, home):
    """SQLite opens it by itself."""
    told = trial(
        guard,
        home,
        """
import sqlite3
for name in (":memory:", "own.db"):
    base = sqlite3.connect(name)
    base.execute("create table a (b)")
    for line, *more in (
        ("attach ? as x", (os.path.abspath("other.db"),)),
        ("attach 'other.db' as x",),
        ("vacuum into 'other.db'",),
        ("vacuum",),
        (f"attach '{os.environ['TMPDIR']}/free.db' as free",),
        ("attach 'file:kept.db?mode=ro' as kept",),
    ):
        try:
            base.execute(line, *more)
            print("done", line[:16])
        except sqlite3.DatabaseError as error:
            print("kept", line[:16], "DatabaseError:", error)
    base.close()
""",
    )
    done = ["kept", "kept", "kept", "done", "done"]
    assert [line.split()[0] for line in told.splitlines()] in (2 * [*done, "kept"], 2 * [*done, "done"])
    assert names(home) == ["kept.txt", "out", "out/inner", "out/kept.bin", "way"]
    assert guard.limit_met(told.splitlines()[2])[1]["path"].endswith("/home/other.db")


def that_have(module):
    """Interpreters here with a module that many are built without."""
    there = [one for one in (sys.executable, shutil.which("python3", path="/usr/bin")) if one]
    return [one for one in there if subprocess.run([one, "-c", f"import {module}"], check=False, stderr=-3).returncode == 0]


@pytest.mark.skipif(sys.platform != "linux", reason="shared memory is no folder")
def test_shared_memory_of_workers_works_and_that_of_others_is_kept(guard, home):
    name = f"flatout-of-others-{os.getpid()}"
    others = Path("/dev/shm", name)
    others.write_bytes(b"mine")
    try:
        told = trial(
            guard,
            home,
            """
from multiprocessing import Process, shared_memory
block = shared_memory.SharedMemory(create=True, size=16)
def fill(name):
    other = shared_memory.SharedMemory(name)
    other.buf[0] = 7
    other.close()
worker = Process(target=fill, args=(block.name,))
worker.start()
worker.join()
print(block.buf[0])
block.close()
block.unlink()
import _posixshmem
for call in (lambda: shared_memory.SharedMemory(sys.argv[2]), lambda: _posixshmem.shm_unlink("/" + sys.argv[2])):
    try:
        call()
    except PermissionError as error:
        print(error.filename)
""",
            name,
        )
        assert told.split() == ["7", str(others), str(others)]
        assert others.read_bytes() == b"mine"
    finally:
        others.unlink()


NDBM = next(iter(that_have("_dbm")), None)


@pytest.mark.skipif(NDBM is None, reason="no interpreter here has _dbm")
def test_the_systems_own_database_is_led_aside(guard, home):
    def made_by(code, python=NDBM):
        subprocess.run([python, "-c", "import dbm.ndbm, sys\nat = sys.argv[1]\n" + code, str(home / "held")], check=True)

    made_by("base = dbm.ndbm.open(at, 'c')\nbase['a'] = b'mine'\nbase.close()")
    before = names(home)
    trial(
        guard,
        home,
        """
import dbm.ndbm
with dbm.ndbm.open("held") as base:
    assert base["a"] == b"mine"
with dbm.ndbm.open("held", "w") as base:
    base["a"] = b"theirs"
with dbm.ndbm.open(os.path.abspath("held"), "r") as base:
    assert base["a"] == b"theirs"
with dbm.ndbm.open("new", "c") as base:
    base["a"] = b"new"
with dbm.ndbm.open("new") as base:
    assert base["a"] == b"new" and glob.glob("new*")
""",
        python=NDBM,
    )
    assert names(home) == before
    made_by("assert dbm.ndbm.open(at)['a'] == b'mine'")


def test_shared_memory_itself_is_not_given_to_programs_that_remove(guard, home):
    """Under Landlock, which has to leave it open; else other programs are the kernel's business there."""
    guard.starts_all = True
    told = trial(
        guard,
        home,
        """
import subprocess
for line in ("rmdir /dev/shm", "cd /dev/shm && rm -f flatout-nothing", "rm -f nothing/dev/shmem"):
    try:
        subprocess.run(line, shell=True, capture_output=True)
        print("started")
    except PermissionError:
        print("refused")
""",
    )
    assert told.split() == ["refused", "refused", "started"]


@pytest.mark.thorough
def test_libraries_in_c_read_what_python_wrote_and_write_where_python_reads(guard, home):
    pytest.importorskip("torch")
    trial(
        guard,
        home,
        """
import warnings
warnings.simplefilter("ignore")
import torch
net, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
    net(x)
seen.export_chrome_trace("out/trace.json")
assert os.path.getsize("out/trace.json")
from torch.distributed.rendezvous import rendezvous
store, rank, size = next(rendezvous(f"file://{os.path.abspath('meet')}?rank=0&world_size=1"))
store.set("a", "b")
assert os.path.exists("meet")
""",
    )
    assert names(home) == ["kept.txt", "out", "out/inner", "out/kept.bin", "way"]


@pytest.mark.thorough
def test_an_exported_program_is_led_aside(guard, home):
    pytest.importorskip("torch")
    trial(
        guard,
        home,
        """
import torch
torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)), "net.pt2")
torch.export.load("net.pt2")
""",
    )
    assert not (home / "net.pt2").exists()


@pytest.mark.parametrize(
    ("library", "code"),
    [
        (
            "safetensors",
            """
import numpy
from safetensors import safe_open
from safetensors.numpy import save
open("w.safetensors", "wb").write(save({"a": numpy.ones(2)}))
with safe_open("w.safetensors", framework="np") as opened:
    assert list(opened.keys()) == ["a"]
""",
        ),
        (
            "tokenizers",
            """
from tokenizers import Tokenizer, models
Tokenizer(models.BPE()).save("own.json")
text = open("own.json").read()
open("by-python.json", "w").write(text)
Tokenizer.from_file("own.json"), Tokenizer.from_file("by-python.json")
""",
        ),
    ],
)
def test_what_was_written_aside_is_found_by(guard, home, library, code):
    pytest.importorskip(library)
    trial(guard, home, code)
    assert names(home) == ["kept.txt", "out", "out/inner", "out/kept.bin", "way"]


def test_what_c_does_not_find_is_not_the_scripts_fault(guard, home, monkeypatch):
    """It lies in the trial's folder; the kernel knows nothing of that."""
    monkeypatch.chdir(home)
    code = """
import ctypes
os.makedirs("runs/1")
open("runs/1/index.bin", "w").write("x")
libc = ctypes.CDLL(None, use_errno=True)
print(libc.open(os.fsencode(os.path.abspath("runs/1/index.bin")), 0))
"""
    assert trial(guard, home, code) == "-1\n"
    place = home / "runs" / "1" / "index.bin"
    for said in (
        f"Traceback\nRuntimeError: No such file or directory: {place}",
        f"FileNotFoundError: [Errno 2] Failed to open local file '{place}'. Detail: [errno 2] No such file or directory",
        "lmdb.Error: runs/1/index.bin: No such file or directory",
    ):
        assert guard.limit_met(said) == ("led-aside", {"path": str(place)}), said
    assert guard.limit_met(f"FileNotFoundError: [Errno 2] No such file or directory: '{home}/nothing'") is None
    assert guard.limit_met(f"ValueError: {place}") is None
