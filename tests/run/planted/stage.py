"""Runs a scene in a process of its own, plain or observed, and tells how it ended."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import _flatout_agent
from _flatout_agent import wire
from conftest import QUIET

HERE = Path(__file__).parent
INJECT = str(Path(_flatout_agent.__file__).parent / "inject")


@dataclass(frozen=True)
class Scene:
    """One way for the script to go, and what the front asks of the agent."""

    arguments: tuple[str, ...]
    stand_in: bool = False
    asked: tuple[tuple[str, object], ...] = ()


# In the order in which they are looked through for one that comes by a point.
SCENES = {
    "trains": Scene(("trains",)),
    "compiles": Scene(("trains", "compiles")),
    "on-a-device": Scene(("trains",), stand_in=True, asked=(("memory_fraction", 0.5),)),
    "ends-with-code": Scene(("code",)),
    "ends-in-two-devices": Scene(("two-devices",)),
    "ends-out-of-memory": Scene(("out-of-memory",), stand_in=True),
    "trains-in-a-child": Scene(("child",)),
    "looks-deep": Scene(("trains",), asked=(("deep", True),)),
    "puts-knobs-on": Scene(("trains",), asked=(("knobs", {"gc_policy": "manual"}),)),
}


@dataclass(frozen=True)
class Told:
    """What a script leaves behind: this must not differ."""

    returncode: int
    stdout: bytes
    stderr: bytes
    files: dict[str, bytes]


@dataclass(frozen=True)
class Observed:
    told: Told
    reached: set[str]
    journals: Path


class Zygote:
    def __init__(self, folder):
        self._folder = folder
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "zygote.py"), INJECT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **QUIET, "PYTHONHASHSEED": "0"},
            text=True,
        )

    def plain(self, scene):
        return self._run(scene, self._new_folder(), {})

    def observed(self, scene, points=(), nth=0):
        folder = self._new_folder()
        journals = folder / "run"
        journals.mkdir()
        job, seen = folder / "job.json", folder / "reached"
        seen.touch()
        job.write_text(json.dumps(wire.new_job(str(journals), time.time(), **dict(scene.asked))))
        environ = {
            wire.JOB_VARIABLE: str(job),
            **planted(points, nth, seen),
        }
        told = self._run(scene, folder, environ)
        return Observed(told, set(seen.read_text().split()), journals)

    def _new_folder(self):
        self._count += 1
        folder = self._folder / str(self._count)
        (folder / "work").mkdir(parents=True)
        return folder

    def _run(self, scene, folder, environ):
        wanted = {"folder": str(folder / "work"), "arguments": scene.arguments, "stand_in": scene.stand_in, "environ": environ}
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        returncode = int(self._process.stdout.readline())
        return told_by(returncode, (folder / "stdout").read_bytes(), (folder / "stderr").read_bytes(), folder / "work")

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def planted(points, nth, seen):
    """The environment that plants them."""
    return {
        "PLANTED": ",".join(points),
        "PLANTED_NTH": str(nth),
        "PLANTED_SEEN": str(seen),
        "PLANTED_INJECT": INJECT,
    }


def told_by(returncode, stdout, stderr, folder):
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return Told(returncode, stdout, stderr, {name: data for name, data in files.items() if not name.startswith(".flatout")})
