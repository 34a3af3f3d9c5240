"""A fault of the agent never reaches the script: an exception is planted in every function that its hooks come by.

`planted/points.py` lists them. They are planted some at a time, raising at every call, in a process that trains, and alone
where one kept another from being reached (all of them alone with `--thorough`); then all at once, each raising once in the
course of the training. What the script prints, writes and learns, and how it ends, must be as under plain Python, and what
the agent did write must still make a summary.

To have a process per point in seconds, they are forked from one that has imported torch (`planted/zygote.py`). What
happens while torch is imported, and the real command around it, is tried in whole runs at the end.
"""

import ast
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("torch")
if not hasattr(os, "fork"):
    pytest.skip("forks", allow_module_level=True)

from planted import planting
from planted.points import BROUGHT_ABOUT_BY, ELSEWHERE, NOT_HOOKS, POINTS, WHILE_IMPORTING
from planted.stage import HERE, INJECT, SCENES, Zygote, planted, told_by

from conftest import QUIET, torch_version
from flatout.launch import journals
from flatout.measure.process_journals import attribute

AGENT = Path(INJECT).parent
COMPILES = torch_version() >= (2, 3)  # before, Dynamo has no callbacks, and 2.0 cannot on Python 3.11
TRIES = 4
NAMES = [name for name in SCENES if COMPILES or name != "compiles"]


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """The scenes, what each leaves under plain Python, and which points each comes by."""
    zygote = Zygote(tmp_path_factory.mktemp("faults"))
    yield Stage(zygote)
    zygote.close()


class Stage:
    def __init__(self, zygote):
        self.observed = zygote.observed
        self.plain = cache(lambda name: zygote.plain(SCENES[name]))
        self._reached = {}

    def scene_of(self, point):
        """What is looked at now and then is met by chance where the machine is busy: then the scenes are played again."""
        for again in range(2 * TRIES):
            for name in NAMES:
                if name not in self._reached or again:
                    self._reached[name] = self._reached.get(name, set()) | self.observed(SCENES[name]).reached
                if point in self._reached[name]:
                    return name
        if not COMPILES and "compil" in point:
            pytest.skip("torch before 2.3 does not come by it")
        raise AssertionError(f"no scene comes by {point}")


def functions():
    for path in sorted(AGENT.rglob("*.py")):
        parts = path.relative_to(AGENT).with_suffix("").parts
        if not any(".".join(parts[:depth]) in ELSEWHERE for depth in range(1, len(parts) + 1)):
            for name, _ in planting.functions_of(ast.parse(path.read_text(encoding="utf-8"))):
                yield f"{'.'.join(parts)}:{name}"


def test_every_function_of_the_agent_is_listed():
    """A new one belongs into POINTS, or into NOT_HOOKS with its reason."""
    points = {point.removesuffix("@guarded") for point in POINTS} - planting.ATTRIBUTES.keys()
    there = set(functions())
    listed = points | NOT_HOOKS.keys()
    assert sorted(there - listed) == []
    assert sorted(listed - there) == []
    assert not points & NOT_HOOKS.keys()
    assert len(POINTS) == len(set(POINTS))


@pytest.mark.parametrize("name", NAMES)
def test_the_scenes_are_the_same_without_a_fault(name, stage):
    seen = stage.observed(SCENES[name])
    assert seen.told == stage.plain(name)
    told = attribute(journals.read(seen.journals), 1.0)
    assert told.steps >= 40
    assert not faults_in(seen.journals)


SINGLE = [point for point in POINTS if point not in WHILE_IMPORTING]
APART = len(SINGLE) // 6  # neighbours in the list call each other: the first would keep the others from being reached


@pytest.mark.parametrize("first", range(APART))
def test_faults_never_reach_the_script(first, stage):
    """Six of them at a time; those that the others kept from being reached have a process of their own."""
    by_scene = {}
    for point in SINGLE[first::APART]:
        by_scene.setdefault(None if point in BROUGHT_ABOUT_BY else stage.scene_of(point), []).append(point)
    alone = by_scene.pop(None, [])
    for name, points in by_scene.items():
        seen = stage.observed(SCENES[name], points)
        assert seen.told == stage.plain(name), points
        attribute(journals.read(seen.journals), 1.0)
        alone += [point for point in points if point not in seen.reached]
    for point in alone:
        fault_alone(point, stage)


@pytest.mark.thorough
@pytest.mark.parametrize("point", SINGLE)
def test_a_fault_never_reaches_the_script(point, stage):
    fault_alone(point, stage)


def fault_alone(point, stage):
    cause = BROUGHT_ABOUT_BY.get(point)
    first = stage.scene_of(cause or point)
    for name in [*[first] * TRIES, *NAMES] * 2:  # what is met by chance in one scene may be met surely in another
        seen = stage.observed(SCENES[name], [point, *filter(None, [cause])])
        assert seen.told == stage.plain(name), point
        attribute(journals.read(seen.journals), 1.0)
        if point in seen.reached:
            return
    raise AssertionError(f"{point} was not reached")


@pytest.mark.parametrize("nth", [1, pytest.param(2, marks=pytest.mark.thorough), 5])
@pytest.mark.parametrize("name", NAMES)
def test_all_faults_one_after_the_other(name, nth, stage):
    """Each raises once: the next call goes on to what lies behind it."""
    seen = stage.observed(SCENES[name], POINTS, nth)
    assert seen.told == stage.plain(name)
    assert faults_in(seen.journals)
    attribute(journals.read(seen.journals), 1.0)


def faults_in(folder):
    return [line for lines in journals.read(folder) for line in lines if line["kind"] == "fault"]


# -- whole runs of the real command ------------------------------------------------------------------------------------

ENV = shutil.which("env")


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    script = [sys.executable, HERE / "train.py", "code"]
    environ = {**os.environ, **QUIET, "PYTHONHASHSEED": "0"}
    ended = subprocess.run(script, cwd=folder, capture_output=True, env=environ, stdin=subprocess.DEVNULL, check=False)
    return told_by(ended.returncode, ended.stdout, ended.stderr, folder)


WHOLE_RUNS = {
    **{point: ([point], 0) for point in WHILE_IMPORTING},
    "all-always": (POINTS, 0),
    "all-in-turn": (POINTS, 1),
}
SINGLY = [pytest.param(point, marks=pytest.mark.thorough) for point in WHILE_IMPORTING[1:]]  # all of them are in the other two


@pytest.mark.skipif(ENV is None, reason="there is no env to put the planter before the agent with")
@pytest.mark.parametrize("name", [WHILE_IMPORTING[0], "all-always", "all-in-turn", *SINGLY])
def test_the_real_command_survives(name, flatout, plain_run, tmp_path):
    points, nth = WHOLE_RUNS[name]
    seen, folder = tmp_path / "reached", tmp_path / "work"
    folder.mkdir()
    seen.touch()
    inner = ["env", f"PYTHONPATH={HERE / 'first'}:{INJECT}", sys.executable, HERE / "train.py", "code"]
    ended = flatout("run", *inner, env={**planted(points, nth, seen), "PYTHONHASHSEED": "0"}, cwd=folder)
    told = told_by(ended.returncode, ended.stdout, b"", folder)
    assert (told.returncode, told.stdout, told.files) == (plain_run.returncode, plain_run.stdout, plain_run.files)
    assert "Traceback" not in ended.stderr
    assert ended.summary["exit_code"] == 7
    assert set(points) & set(seen.read_text().split())
