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
import planted_home
import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
NOBODY = 65534

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the attacks are those of Linux")

# An interpreter below root's home can be read by nobody else: this one right is left.
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
READING = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]

ONE = pytest.mark.parametrize("user", ["self", pytest.param("nobody", marks=pytest.mark.thorough)])
OTHER = pytest.mark.parametrize("user", [pytest.param("self", marks=pytest.mark.thorough), "nobody"])


class Ground:
    """A home with a project in it, a data disk, shared memory, a temporary folder: planted for every way of attack."""

    def __init__(self, top, shared, cache):
        self.cache = cache
        self.project = top / "home" / "project"
        self.tops = [top, shared]
        self.places = {
            ".": self.project,
            "~": top / "home",
            "../outputs": top / "home" / "outputs",
            str(top / "hard-coded"): top / "hard-coded",
            "checkpoints": top / "disk" / "checkpoints",
            str(shared): shared,
        }
        self.project.mkdir(parents=True)
        (self.project / "checkpoints").symlink_to(top / "disk" / "checkpoints")

    def plant(self, ways, once, wanted):
        """For each way the places in which it is tried."""
        template = Path(tempfile.mkdtemp())
        planted_home.plant(template / "t")
        planted_home.age(template / "t")
        chosen = [self.places[place] for place in wanted]
        for number, way in enumerate(ways):
            for place in attacks.places_for(number, chosen):
                shutil.copytree(template / "t", place / way, symlinks=True)
        for place in chosen:
            for way in once:
                shutil.copytree(template / "t", place / way, symlinks=True)
        shutil.rmtree(template)

    def give_to(self, user):
        for top in (*self.tops, self.cache):
            subprocess.run(["chown", "-R", f"{user}:{user}", str(top)], check=True)
        os.chmod(self.tops[0], 0o755)

    def snapshots(self):
        return [planted_home.snapshot(top) for top in self.tops]


@pytest.fixture
def ground():
    # Neither is where pytest keeps its folders: those of a user are closed to others.
    top, shared = Path(tempfile.mkdtemp(prefix="attacked-")), Path(tempfile.mkdtemp(prefix="attacked-", dir="/dev/shm"))
    cache = Path(tempfile.mkdtemp(prefix="attacked-"))  # of compilers, which lies in the home folder otherwise
    yield Ground(top, shared, cache)
    for folder in (top, shared, cache):
        shutil.rmtree(folder, ignore_errors=True)


def attacked(ground, kind, user, about, *who, places=None):
    """What the trial told, and all that changed."""
    for one in who:
        once = [attack.__name__ for attack in attacks.ONCE[one]]
        ground.plant([attack.__name__ for attack in attacks.chosen(one, about)], once, places or ground.places)
    drop = []
    if user == "nobody":
        if os.getuid() != 0 or not shutil.which("setpriv"):
            pytest.skip("only root can be another user")
        ground.give_to(NOBODY)
        drop = [*AS_NOBODY, *READING]
    before = ground.snapshots()
    environ = {name: value for name, value in os.environ.items() if name != "LOGNAME"}
    environ.update(
        XDG_CACHE_HOME=str(ground.cache),
        HOME=str(ground.places["~"]),
        USER=user,
        PYTHONPATH=f"{SOURCE}{os.pathsep}{HERE}",
        OMP_NUM_THREADS="1",
    )
    line = [HERE / "trial_under.py", kind, HERE / "attacks.py", ":".join(places or ground.places), about, *who]
    ended = subprocess.run(
        [*drop, sys.executable, *map(str, line)], cwd=ground.project, env=environ, capture_output=True, text=True, check=False
    )
    if f"FLATOUT_TRIALS={kind}: this system does not give it" in ended.stderr:
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
    only = str(ground.tops[0] / "hard-coded")
    ground.plant(ways, [once.__name__ for once in attacks.ONCE["python"]], [only])
    before = ground.snapshots()
    line = [sys.executable, str(HERE / "attacks.py"), only, "all", *attacks.WAYS]
    environ = {**os.environ, "TMPDIR": tempfile.gettempdir(), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)}
    ended = subprocess.run(line, cwd=ground.project, env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    told = changes(before, ground.snapshots())
    spared = [way for way in ways if not any(f"hard-coded/{way}/" in line or f"hard-coded/{way}:" in line for line in told)]
    # Made and gone again; not to be seen by names, content, rights or times; or not allowed to this user.
    assert set(spared) <= {"unnamed_temporary", "c_chown", "os_chown", "os_setxattr"}, spared


@ONE
def test_under_landlock_nothing_is_changed(ground, user):
    told, before, after = attacked(ground, "landlock", user, "all", "python")
    assert changes(before, after) == []
    assert "landlock-attributes" in told["gaps"]


@OTHER
def test_under_landlock_libraries_and_programs_change_no_content(ground, user):
    """In shared memory they could: that is named. So are rights, owner, times and attributes."""
    places = [place for place in ground.places if not place.startswith("/dev/shm")]
    told, before, after = attacked(ground, "landlock", user, "all", "library", "program", places=places)
    assert changes(before, after, about=False) == []
    assert {"landlock-attributes", "landlock-shared-memory"} <= set(told["gaps"])


@OTHER
def test_under_the_guard_python_changes_nothing(ground, user):
    told, before, after = attacked(ground, "guard", user, "all", "python")
    assert changes(before, after) == []
    assert {"guard-libraries", "guard-programs"} <= set(told["gaps"])
    assert told["changed"] == []


@ONE
def test_under_the_overlay_nothing_is_changed(ground, user):
    """By nobody: neither Python, nor libraries, nor programs, in no place."""
    _, before, after = attacked(ground, "overlay", user, "all", *attacks.WAYS)
    assert changes(before, after) == []
