"""The user's interpreter without its torch, and further torches in reach, by their files alone."""

from __future__ import annotations

import json
import os
import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from flatout.base.records import Missing
from flatout.machine.machine_facts import Interpreter
from flatout.machine.probe_host import World

LIMIT_S = 5.0
MARK = "flatout-interpreter "
# One line, on any Python from 2.7 on: an interpreter too old for torch should be told by its number, not by an error.
PROGRAM = (
    "import json, os, struct, sys; "
    "p = sys.prefix; "
    "print(" + repr(MARK) + " + json.dumps({"
    "'version': '.'.join(map(str, sys.version_info[:3])), 'bits': struct.calcsize('P') * 8, "
    "'conda': os.path.isdir(os.path.join(p, 'conda-meta')), "
    "'venv': p != getattr(sys, 'base_prefix', p) or hasattr(sys, 'real_prefix')}))"
)
MOST_ENVIRONMENTS = 30


def interpreter(world: World, python: str) -> Interpreter:
    if _same(python, sys.executable):
        conda = os.path.isdir(os.path.join(sys.prefix, "conda-meta"))
        return Interpreter(
            path=python,
            version=sys.version.split()[0].rstrip("+"),
            bits=struct.calcsize("P") * 8,
            environment=kind_of(conda=conda, venv=sys.prefix != sys.base_prefix),
        )
    output = world.run([python, "-c", PROGRAM], LIMIT_S)
    if output.code is None:
        why = Missing("not-found", python)
    elif output.timed_out:
        why = Missing("probe-timeout", python)
    else:
        answer = _answer(output.stdout)
        if answer:
            return described(python, answer)
        why = Missing("unreadable", (output.stderr.strip().splitlines() or [""])[-1][:200])
    return Interpreter(path=python, version=why, bits=why, environment=why)


def described(python: str, answer: dict[str, object]) -> Interpreter:
    """From what a child of it said of itself."""
    version, bits = answer.get("version"), answer.get("bits")
    return Interpreter(
        path=python,
        version=version if isinstance(version, str) else Missing("not-reported"),
        bits=bits if isinstance(bits, int) else Missing("not-reported"),
        environment=kind_of(conda=bool(answer.get("conda")), venv=bool(answer.get("venv"))),
    )


def kind_of(conda: bool, venv: bool) -> str:
    # A venv made by conda's Python is a venv: its packages are its own.
    return "venv" if venv else "conda" if conda else "system"


def _same(one: str, other: str) -> bool:
    # By folder too, not only by what the link points to: two environments may share one interpreter file.
    folders = {os.path.dirname(os.path.abspath(path)) for path in (one, other)}
    return len(folders) == 1 and os.path.realpath(one) == os.path.realpath(other)


def _answer(stdout: str) -> dict[str, object] | None:
    for line in reversed(stdout.splitlines()):
        if line.startswith(MARK):
            try:
                answer = json.loads(line[len(MARK) :])
            except ValueError:
                return None
            return answer if isinstance(answer, dict) else None
    return None


def other_torches(world: World, python: str) -> list[str]:
    """ "2.7.0+cu128 in /home/user/miniconda3/envs/ml": environments of this user that hold a torch, save `python`'s own."""
    own = Path(os.path.abspath(python)).parent.parent
    found: list[str] = []
    for prefix in dict.fromkeys(_environments(world)):
        if prefix == str(own):
            continue
        for pattern in ("lib/python3*/site-packages/torch/version.py", "Lib/site-packages/torch/version.py"):
            for file in world.path(prefix).glob(pattern):
                match = re.search(r"__version__ = '([^']+)'", file.read_text(encoding="utf-8", errors="replace"))
                found.append(f"{match[1] if match else '?'} in {prefix}")
    return found


def _environments(world: World) -> Iterator[str]:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if world.environ.get(variable):
            yield world.environ[variable]
    home = world.environ.get("HOME") or world.environ.get("USERPROFILE") or ""
    if world.root == Path("/"):
        for name in (".venv", "venv", "env"):
            yield os.path.abspath(name)
    # Conda keeps the list of all environments that it ever made.
    yield from world.words(f"{home}/.conda/environments.txt").splitlines()[:MOST_ENVIRONMENTS]
