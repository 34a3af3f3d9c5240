"""An overlay of everything that can be written: whatever a trial does, outside nothing has changed."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from planted_files import Homes

WAYS = """
import json, mmap, os, shutil, sqlite3, subprocess, sys
from pathlib import Path

def swap(path):
    Path(f"{path}.new").write_text("")
    os.replace(f"{path}.new", path)

def insert(path):
    database = sqlite3.connect(path)
    with database:
        database.execute("insert into trials values (1)")
    database.close()

def map_over(path):
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        view[0:1] = b"X"

def remade(folder):
    shutil.rmtree(folder)
    os.makedirs(folder)
    assert os.listdir(folder) == []

def committed(folder):
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=folder, check=True)

WAYS = {
    "open w": lambda home: open(home / "results.csv", "w").write("gone"),
    "open a": lambda home: open(home / "results.csv", "a").write("more"),
    "truncate": lambda home: os.truncate(home / "results.csv", 0),
    "chmod": lambda home: os.chmod(home / "results.csv", 0o600),
    "utime": lambda home: os.utime(home / "results.csv"),
    "mmap": lambda home: map_over(home / "outputs/run/best.pt"),
    "through a link": lambda home: (home / "checkpoints/last.pt").write_bytes(b"new"),
    "sqlite": lambda home: insert(home / "study.db"),
    "replace": lambda home: swap(home / "results.csv"),
    "rename": lambda home: os.rename(home / "results.csv", home / "old.csv"),
    "sed": lambda home: subprocess.run(["sed", "-i", "s/o/e/", str(home / "old.csv")], check=True),
    "move a folder": lambda home: shutil.move(home / "disk", home / "moved"),
    "remade": lambda home: remade(home / "outputs"),
    "made there again": lambda home: (home / "outputs" / "run").mkdir(),
    "link": lambda home: os.symlink("old.csv", home / "results.csv"),
    "git": lambda home: committed(home) if shutil.which("git") else None,
    "rm": lambda home: subprocess.run(["rm", "-rf", str(home / "moved"), str(home / "outputs")], check=True),
}
told = []
for home in sys.argv[1:]:
    for name, way in WAYS.items():
        try:
            way(Path(home))
        except Exception as error:
            told.append([home, name, repr(error)])
print(json.dumps(told))
"""


@pytest.fixture
def homes(tmp_path):
    made = Homes(tmp_path / "home")
    yield made
    made.remove()


def run(overlay, *command, **more):
    environ = {**os.environ, **overlay.environ}
    return subprocess.run(overlay.wrap(command), capture_output=True, text=True, check=False, env=environ, **more)


def python(overlay, text, *words):
    return run(overlay, sys.executable, "-c", text, *map(str, words))


def test_nothing_comes_through_and_every_way_works(homes, overlay_for, tmp_path):
    overlay = overlay_for(homes.folders[0], XDG_CACHE_HOME=str(tmp_path / "cache"))
    for _ in range(2):  # the second trial finds everything as the first one did
        ended = python(overlay, WAYS, *homes.folders)
        assert ended.returncode == 0, ended.stderr
        assert json.loads(ended.stdout) == []
        homes.unchanged()


def test_beside_the_script_and_at_the_root(tmp_path, overlay_for):
    project = tmp_path / "repository" / "project"
    (tmp_path / "repository" / "outputs").mkdir(parents=True)
    (tmp_path / "repository" / "outputs" / "best.pt").write_bytes(b"mine")
    project.mkdir()
    overlay = overlay_for(project)
    text = "open('../outputs/best.pt', 'w').close()\ntry:\n open('/results.csv', 'w')\nexcept PermissionError: pass"
    ended = python(overlay, text)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "repository" / "outputs" / "best.pt").read_bytes() == b"mine"
    assert not os.path.exists("/results.csv")


@pytest.mark.skipif(not shutil.which("git"), reason="no git")
def test_a_folder_of_a_repository_knows_its_repository(tmp_path, overlay_for):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "inner").mkdir()
    ended = run(overlay_for(tmp_path / "inner"), "git", "rev-parse", "--show-toplevel")
    assert ended.stdout.strip() == str(tmp_path.resolve()), ended.stderr


def test_the_script_is_who_it_is_outside(tmp_path, overlay_for):
    text = "import os; print(os.getuid(), os.getgid(), os.getcwd(), os.path.expanduser('~'))"
    ended = python(overlay_for(tmp_path), text)
    assert ended.stdout.split() == [str(os.getuid()), str(os.getgid()), str(tmp_path), os.path.expanduser("~")], ended.stderr


@pytest.mark.parametrize(
    ("how", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", -9), ("os.abort()", -6), ("pass", 0)]
)
def test_it_ends_as_the_command_ends(how, code, tmp_path, overlay_for):
    assert python(overlay_for(tmp_path), f"import os, sys\n{how}").returncode == code


def test_shared_memory_of_workers_and_what_lies_there(homes, overlay_for):
    text = """
import sys
from multiprocessing import Process, Queue, shared_memory
def work(name, queue):
    block = shared_memory.SharedMemory(name)
    block.buf[0] = 7
    queue.put(1)
    block.close()
if __name__ == "__main__":
    block, queue = shared_memory.SharedMemory(create=True, size=1 << 20), Queue()
    child = Process(target=work, args=(block.name, queue))
    child.start()
    queue.get()
    child.join()
    print(block.buf[0], all(open(f"{home}/results.csv").read() for home in sys.argv[1:]))
    block.close()
    block.unlink()
"""
    ended = python(overlay_for(homes.folders[0]), text, *homes.folders)
    assert ended.stdout == "7 True\n", ended.stderr


def test_what_compilers_built_lives_on_and_what_was_downloaded_lasts_one_search(tmp_path, overlay_for):
    overlay = overlay_for(tmp_path)
    text = """
import os
from pathlib import Path
built, cache = Path(os.environ["TRITON_CACHE_DIR"], "kernel"), Path(os.path.expanduser("~/.cache/hub/weights"))
print(built.exists(), cache.exists())
built.touch()
cache.parent.mkdir(parents=True, exist_ok=True)
cache.touch()
"""
    environ = {**os.environ, **overlay.environ, "HOME": str(tmp_path)}
    told = []
    for _ in range(2):
        command = overlay.wrap([sys.executable, "-c", text])
        told.append(subprocess.run(command, capture_output=True, text=True, check=False, env=environ).stdout)
    assert told == ["False False\n", "True True\n"]
    assert (tmp_path / ".cache" / "flatout" / "compiled" / "triton" / "kernel").exists()
    assert not (tmp_path / ".cache" / "hub").exists()


def test_the_users_own_cache_counts_more(tmp_path, overlay_for):
    overlay = overlay_for(tmp_path, TRITON_CACHE_DIR=str(tmp_path / "mine"))
    assert overlay.environ["TRITON_CACHE_DIR"] == str(tmp_path / "mine")
    assert python(overlay, "import os; open(os.environ['TRITON_CACHE_DIR'] + '/kernel', 'w').close()").returncode == 0
    assert (tmp_path / "mine" / "kernel").exists()


def test_a_copy_that_would_fill_the_disk_is_named(tmp_path, overlay_for, monkeypatch):
    (tmp_path / "data.mdb").write_bytes(b"x" * (1 << 20))
    overlay = overlay_for(tmp_path)
    if not overlay._memory:
        assert python(overlay, "open('data.mdb', 'r+b').close(); open('small', 'w').write('x')").returncode == 0
        assert overlay.overfull() is None
        overlay._reserve = 1 << 60
        assert overlay.overfull() == tmp_path / "data.mdb"
