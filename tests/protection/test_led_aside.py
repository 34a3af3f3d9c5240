"""The view that trials have of the files under the guard: what they wrote is there for them, and for nobody else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flatout.launch.guard import Guard

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


def trial(guard, home, code, *words):
    guard.wrap([])
    line = [sys.executable, "-c", BEGIN + code, json.dumps(guard.job), *words]
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
