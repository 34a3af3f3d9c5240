"""More than eighty ways of spoiling what is not a script's own, in six places, by root and by others: nothing is changed.

What a protection does not hold, it has named before: `gaps`.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import attacks
import own_mounts
import planted_home
import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
NOBODY = 65534

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the attacks are those of Linux")

AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]

# Every time by an ordinary user, with home and data disk on mounts of their own, each way in half of the places. Thoroughly:
# by root, who has other ways around; in every place; and with everything on the one disk.
ORDINARY = pytest.param({"user": "nobody"}, id="nobody")
ROOT = pytest.param({"user": "self"}, id="self", marks=pytest.mark.thorough)
EVERYWHERE = [
    pytest.param({"user": user, "everywhere": True, "mounted": mounted}, id=name, marks=pytest.mark.thorough)
    for user, mounted, name in (("nobody", True, "nobody everywhere"), ("self", False, "self everywhere"))
]
TRIED = pytest.mark.parametrize("tried", [ORDINARY, ROOT, *EVERYWHERE])


class Ground:
    """A home with a project in it, a data disk, shared memory, a temporary folder: planted for every way of attack."""

    def __init__(self, top, shared, cache):
        self.top, self.shared, self.cache = top, shared, cache
        self.project = top / "home" / "project"
        self.temporary = top / "tmp"  # on the same disk: files can be linked and renamed into it
        self.mounts = None
        self.places = {
            ".": self.project,
            "~": top / "home",
            "../outputs": top / "home" / "outputs",
            str(top / "hard-coded"): top / "hard-coded",
            "checkpoints": top / "disk" / "checkpoints",
            str(shared): shared,
        }

    def begin(self, mounted):
        """`mounted`: home and disk are mounts, as far as root can have them."""
        if own_mounts.can_be_had():
            self.mounts = own_mounts.OwnMounts([self.top, self.top / "disk"] if mounted else [])
            if not self.mounts.there:
                self.mounts.close()
                self.mounts = None
        self.see(self.project).mkdir(parents=True)
        self.see(self.temporary).mkdir()
        self.see(self.project / "checkpoints").symlink_to(self.top / "disk" / "checkpoints")

    def see(self, path):
        return self.mounts.see(path) if self.mounts is not None else path

    def plant(self, ways, once, wanted, everywhere=False):
        """For each way the places in which it is tried."""
        template = Path(tempfile.mkdtemp())
        planted_home.plant(template / "t")
        planted_home.age(template / "t")
        chosen = [self.see(self.places[place]) for place in wanted]
        for number, way in enumerate(ways):
            for place in attacks.places_for(number, chosen, everywhere):
                shutil.copytree(template / "t", place / way, symlinks=True)
        for place in chosen:
            for way in once:
                shutil.copytree(template / "t", place / way, symlinks=True)
        shutil.rmtree(template)

    def give_to(self, user):
        for top in (self.top, self.shared, self.cache):
            subprocess.run(["chown", "-R", f"{user}:{user}", str(self.see(top))], check=True)
        os.chmod(self.see(self.top), 0o755)

    def snapshots(self):
        tops = [self.top / "home", self.top / "hard-coded", self.top / "disk", self.shared]
        return [planted_home.snapshot(self.see(top)) for top in tops]

    def run(self, words, user, environ):
        """As this user, in the project."""
        drop = AS_NOBODY if user == "nobody" else []
        line, here = [*drop, *map(str, words)], self.project
        if self.mounts is not None:
            line, here = self.mounts.command(line, here), "/"
        return subprocess.run(line, cwd=here, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def ground():
    # Neither is where pytest keeps its folders: those of a user are closed to others.
    top, shared = Path(tempfile.mkdtemp(prefix="attacked-")), Path(tempfile.mkdtemp(prefix="attacked-", dir="/dev/shm"))
    cache = Path(tempfile.mkdtemp(prefix="attacked-"))  # of compilers, which lies in the home folder otherwise
    made = Ground(top, shared, cache)
    yield made
    if made.mounts is not None:
        made.mounts.close()
    for folder in (top, shared, cache):
        shutil.rmtree(folder, ignore_errors=True)


def attacked(ground, kind, tried, about, *who, places=None):
    """What the trial told, and all that changed."""
    ground.begin(tried.get("mounted", True))
    everywhere = tried.get("everywhere", False)
    for one in who:
        once = [attack.__name__ for attack in attacks.ONCE[one]]
        ground.plant([attack.__name__ for attack in attacks.chosen(one, about)], once, places or ground.places, everywhere)
    # Only root can be another user, and show him the interpreter; who is not root is an ordinary user himself.
    user = tried["user"] if ground.mounts is not None and shutil.which("setpriv") else "self"
    if user == "nobody":
        ground.give_to(NOBODY)
    before = ground.snapshots()
    environ = {name: value for name, value in os.environ.items() if name != "LOGNAME"}
    environ.update(
        XDG_CACHE_HOME=str(ground.cache),
        HOME=str(ground.places["~"]),
        TMPDIR=str(ground.temporary),
        USER=user,
        PYTHONPATH=f"{SOURCE}{os.pathsep}{HERE}",
        OMP_NUM_THREADS="1",
        ATTACKS_EVERYWHERE="1" if everywhere else "",
    )
    line = [sys.executable, HERE / "trial_under.py", kind, HERE / "attacks.py", ":".join(places or ground.places), about, *who]
    ended = ground.run(line, user, environ)
    if f"FLATOUT_TRIALS={kind} cannot be used on this system" in ended.stderr:
        pytest.skip(f"no {kind} here")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["status"] == 0, told["output"][-3000:]
    assert "attacks" in told["output"]
    assert told["kind"] == kind
    return told, before, ground.snapshots()


def changes(before, after, about=True):
    return [one for pair in zip(before, after, strict=True) for one in planted_home.differences(*pair, about=about)]


def test_the_attacks_do_spoil_what_nobody_holds(ground):
    """Otherwise none of the others would prove anything."""
    ways = [attack.__name__ for who in attacks.WAYS for attack in attacks.chosen(who)]
    assert len(ways) >= 80
    assert len(set(ways)) == len(ways)
    ground.begin(mounted=True)
    only = str(ground.top / "hard-coded")
    ground.plant(ways, [once.__name__ for once in attacks.ONCE["python"]], [only])
    before = ground.snapshots()
    line = [sys.executable, str(HERE / "attacks.py"), only, "all", *attacks.WAYS]
    environ = {**os.environ, "TMPDIR": str(ground.temporary), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)}
    ended = ground.run(line, "self", environ)
    assert ended.returncode == 0, ended.stderr
    told = changes(before, ground.snapshots())
    spared = [way for way in ways if not any(f" {way}/" in f" {line}" or f" {way}:" in line for line in told)]
    # Made and gone again; not to be seen by names, content, rights or times; or not allowed to this user.
    assert set(spared) <= {"unnamed_temporary", "c_chown", "os_chown", "os_setxattr"}, spared


@TRIED
def test_under_landlock_nothing_is_changed(ground, tried):
    told, before, after = attacked(ground, "landlock", tried, "all", "python")
    assert changes(before, after) == []
    assert "landlock-attributes" in told["gaps"]


@TRIED
def test_under_landlock_libraries_and_programs_change_no_content(ground, tried):
    """In shared memory they could: that is named. So are rights, owner, times and attributes."""
    places = [place for place in ground.places if not place.startswith("/dev/shm")]
    told, before, after = attacked(ground, "landlock", tried, "all", "library", "program", places=places)
    assert changes(before, after, about=False) == []
    assert {"landlock-attributes", "landlock-shared-memory"} <= set(told["gaps"])


@TRIED
def test_under_the_guard_python_changes_nothing(ground, tried):
    told, before, after = attacked(ground, "guard", tried, "all", "python")
    assert changes(before, after) == []
    assert {"guard-libraries", "guard-programs"} <= set(told["gaps"])
    assert told["changed"] == []


@TRIED
def test_under_the_overlay_nothing_is_changed(ground, tried):
    """By nobody: neither Python, nor libraries, nor programs, in no place."""
    _, before, after = attacked(ground, "overlay", tried, "all", *attacks.WAYS)
    assert changes(before, after) == []
