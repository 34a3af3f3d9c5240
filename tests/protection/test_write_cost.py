"""What writing a checkpoint costs more in a trial, measured apart; nothing of the user's changes by it."""

import os
import sys
import tempfile

import pytest

from flatout.launch import protection, write_cost
from flatout.launch.protection import Kind, Trying, Unprotected

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="by files without a name")
SIZE = 16 << 20


@pytest.fixture
def home():
    """Not a temporary folder of the system's, which is memory in some overlays."""
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
        path = os.path.join(folder, "last.pt")
        with open(path, "wb") as file:
            file.write(b"the user's")
        yield path


def seen(path):
    folder = os.path.dirname(path)
    with open(path, "rb") as file:
        return file.read(), os.listdir(folder), os.stat(folder).st_mtime_ns, os.stat(path).st_mtime_ns


@pytest.mark.calm
@pytest.mark.parametrize("kind", [Kind.OVERLAY, Kind.GUARD])
def test_it_is_measured_and_leaves_no_trace(kind, home):
    before = seen(home)
    trying = Trying(line=[sys.executable, "train.py"], folders=[], environ=os.environ)
    made = protection.KINDS[kind](trying)
    if made is None:
        pytest.skip("not on this system")
    with made as held:
        if not held.ready:
            pytest.skip("not on this system")
        first = write_cost.slower_a_byte(held, home, SIZE, os.environ)
        assert write_cost._inside(held, home, SIZE, os.environ) > 0
    assert -1e-6 < first < 1e-6  # less than a second for a megabyte either way
    assert seen(home) == before


class Slow(Unprotected):
    """As if a trial took five seconds more for it."""

    kind = Kind.OVERLAY

    def wrap(self, command):
        return [sys.executable, "-c", "import sys; exec(sys.argv[1])", "print(5.0)"]


@pytest.mark.calm
def test_what_it_takes_longer_is_what_it_costs(home):
    assert write_cost.slower_a_byte(Slow(), home, SIZE, {}) * SIZE == pytest.approx(5.0, abs=1.0)
    elsewhere = os.path.join(os.path.dirname(home), "not", "made", "yet.pt")
    assert write_cost.slower_a_byte(Slow(), elsewhere, SIZE, {}) * SIZE == pytest.approx(5.0, abs=1.0)


def test_small_files_and_trials_that_nothing_holds_cost_nothing(home):
    assert write_cost.slower_a_byte(Slow(), home, 1000, {}) == 0
    assert write_cost.slower_a_byte(Unprotected(), home, SIZE, {}) == 0
