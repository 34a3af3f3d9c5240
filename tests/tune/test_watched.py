"""Trials on Windows: what exists is kept from all that Python calls. Trials under the guard: past it, what changed is seen."""

import os
import subprocess
import sys

import pytest

from _flatout_agent.protection.windows_guard import Veto
from flatout.launch.python_guard import Guard

SPOIL = """
import os, pathlib, shutil, sqlite3, subprocess, sys
from _flatout_agent.protection import windows_guard
here = os.getcwd()
windows_guard.put_on(sys.argv[1])
def attempt(call, *args, **more):
    try:
        call(*args, **more)
        print("done", getattr(call, "__name__", call), args)
    except PermissionError as error:
        assert "flatout" in str(error), error
attempt(open, "kept.txt", "w")
attempt(open, "kept.txt", "a")
attempt(open, b"kept.txt", "r+b")
attempt(os.open, "kept.txt", os.O_WRONLY | os.O_TRUNC)
attempt(os.remove, "kept.txt")
attempt(os.unlink, pathlib.Path("out/kept.bin"))
attempt(os.rename, "kept.txt", "moved.txt")
attempt(os.truncate, "kept.txt", 0)
attempt(shutil.move, "kept.txt", "elsewhere.txt")
attempt(shutil.rmtree, "out")
shutil.rmtree("out", ignore_errors=True)
attempt(os.rmdir, "empty")
attempt(os.system, "true; rm -rf out")
attempt(subprocess.run, ["rm", "-rf", "out"])
attempt(subprocess.run, "echo > kept.txt", shell=True)
attempt(subprocess.run, ["/bin/sh", "-c", "mv kept.txt x"])
attempt(subprocess.run, ["/bin/sh", "/c", '"del', 'kept.txt"'])
attempt(pathlib.Path("link").unlink)
attempt(open, "link", "w")
attempt(os.chmod, "kept.txt", 0o777)
attempt(os.utime, "link", (1, 1))
attempt(os.link, "kept.txt", "double")
attempt(sqlite3.connect, "kept.txt")
os.symlink("kept.txt", "made")
attempt(open, "made", "a")
os.remove("made")
with sqlite3.connect("new.db") as database:
    database.execute("create table t (a)")
database.close()
sqlite3.connect(":memory:").close()
os.chmod("new.db", 0o600)
os.remove("new.db")
subprocess.run([sys.executable, "-c", "", "copy", "move"], check=True)
attempt(pathlib.Path("through", "kept.bin").write_text, "")
open("new.txt", "w").write("mine")
attempt(os.replace, "new.txt", "kept.txt")
os.replace("new.txt", "newer.txt")
open("newer.txt", "w").write("mine again")
os.makedirs("made/deep")
open("made/deep/file", "w").close()
if os.fork() == 0:
    shutil.rmtree("made")  # another process of the search made it
    os._exit(0)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0 and not os.path.exists("made")
os.remove("newer.txt")
subprocess.run([sys.executable, "-c", ""], check=True)
open(os.devnull, "w").close()
print("the end", len(os.listdir(here)))
"""


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    (home / "out").mkdir(parents=True)
    (home / "empty").mkdir()
    (home / "kept.txt").write_text("kept", encoding="ascii")
    (home / "out" / "kept.bin").write_bytes(b"kept")
    (home / "link").symlink_to("kept.txt")
    (home / "through").symlink_to("out")
    return home


@pytest.mark.skipif(sys.platform != "linux", reason="dir_fd is resolved by /proc")
def test_what_exists_is_kept_and_what_is_new_is_free(home, tmp_path):
    environ = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}  # what lies in the usual one is free
    (tmp_path / "temporary").mkdir()
    place = tmp_path / "place"
    ended = subprocess.run(
        [sys.executable, "-c", SPOIL, str(place)], cwd=home, capture_output=True, text=True, check=False, env=environ
    )
    assert (ended.returncode, ended.stdout) == (0, "the end 6\n"), ended.stdout + ended.stderr
    refused = os.fsdecode((place / "refused.txt").read_bytes().split(b"\0")[-2])
    assert (home / "kept.txt").read_text(encoding="ascii") == "kept"
    assert (home / "out" / "kept.bin").read_bytes() == b"kept"
    # `move` copies where it may not rename, and then may not remove.
    assert sorted(path.name for path in home.iterdir()) == ["elsewhere.txt", "empty", "kept.txt", "link", "out", "through"]
    assert refused == str(home / "kept.txt")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.jit, which scripts still use
def test_a_checkpoint_goes_beside_the_one_that_is_there(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "temporary"))
    monkeypatch.setattr(torch, "save", torch.save)
    monkeypatch.setattr(torch, "load", torch.load)
    monkeypatch.setattr(torch.serialization, "save", torch.save)
    monkeypatch.setattr(torch.serialization, "load", torch.load)
    for name in ("save", "load"):
        monkeypatch.setattr(torch.jit, name, getattr(torch.jit, name))
    last = tmp_path / "last.pt"
    torch.save({"of": "last week"}, last)
    before = last.read_bytes()
    veto = Veto(str(tmp_path / "place"))
    veto.watch(torch)
    assert torch.load(last) == {"of": "last week"}
    torch.save({"of": "the trial"}, last)
    assert torch.load(last) == {"of": "the trial"}
    assert last.read_bytes() == before
    net = torch.jit.script(torch.nn.Linear(1, 1))
    torch.jit.save(net, str(last))
    assert torch.jit.load(str(last)).weight.item() == net.weight.item()
    assert last.read_bytes() == before
    torch.save({"first": 1}, str(tmp_path / "new.pt"))
    torch.save({"second": 2}, str(tmp_path / "new.pt"))
    assert torch.load(tmp_path / "new.pt") == {"second": 2}
    assert (tmp_path / "new.pt").exists()


def test_what_a_library_changed_past_the_watch_is_seen(home, tmp_path):
    for number, spoil in enumerate(
        (lambda: (home / "kept.txt").write_text("else", encoding="ascii"), lambda: (home / "out" / "kept.bin").unlink())
    ):
        with Guard([home], os.environ) as guard:
            (home / f"new-{number}.txt").touch()
            assert guard.changed() == []
            spoil()
            assert [path.is_relative_to(home) for path in guard.changed()] == [True]


def test_the_script_that_would_overwrite_is_named_and_stopped(tmp_path):
    """Past what is led aside, and before it imports torch."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "train.py").write_text(
        "import posix\nposix.open('log.txt', posix.O_WRONLY | posix.O_TRUNC)\nimport torch\n", encoding="ascii"
    )
    (home / "log.txt").write_text("the whole story", encoding="ascii")
    environ = {**os.environ, "FLATOUT_LANG": "en", "FLATOUT_TRIALS": "guard", "TMPDIR": str(tmp_path / "temporary")}
    (tmp_path / "temporary").mkdir()
    ended = subprocess.run(
        [sys.executable, "-m", "flatout", "tune", "train.py"],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        env=environ,
    )
    assert ended.returncode == 1, ended.stderr
    assert "protected by a guard inside the trials' Python" in ended.stderr
    assert f"it changes {home / 'log.txt'}" in ended.stderr.splitlines()[-1]
    assert (home / "log.txt").read_text(encoding="ascii") == "the whole story"
