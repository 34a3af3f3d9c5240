"""Tests that the guard works in the interpreter that will run the script, by trying what a trial must not do.

Options such as `-E`, `-I` and `-S`, an interpreter older than the agent, or a program that only looks like Python would run the
script without it, and nobody would be told.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _flatout_agent import wire
from flatout.launch import environment

LONGEST_S = 60.0  # on a network disk, read for the first time
KEPT = b"kept"
HELD = b"held"

# First as scripts write, which is led aside; then past what is led aside, which is refused.
TRIES = """
import os, sys
try:
    with open(sys.argv[1], "w") as file:
        file.write("changed")
except PermissionError:
    pass
try:
    __import__(os.name).open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
except PermissionError:
    print("held")
"""


def can_be_guarded(line: Sequence[str]) -> bool:
    """Only Python can be: not a shell script, nor a launcher that is none."""
    return os.path.basename(line[0]).startswith("python")


def is_on(line: Sequence[str], environ: Mapping[str, str], job: Mapping[str, Any], place: Path) -> bool:
    """`job`: the protection's fields, of which `place` is not free to write to. Nothing of the script's is started."""
    if not can_be_guarded(line):
        return False
    planted, path = place / "planted", place / "proof.json"
    planted.write_bytes(KEPT)
    path.write_bytes(wire.job_text(wire.new_job(str(place), time.time(), **job)))
    command = [line[0], *interpreter_options(line[1:]), "-c", TRIES, str(planted)]
    try:
        ended = subprocess.run(
            command,
            env=environment.of_trial(environ, path, held=True),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=LONGEST_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0 and ended.stdout.strip() == HELD and planted.read_bytes() == KEPT


def interpreter_options(words: Sequence[str]) -> list[str]:
    """The interpreter's own, before the script, the module or the code: `-u`, `-W ignore`; of `-um` the first letter."""
    found: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if not word.startswith("-") or word in ("-", "--"):
            break
        own, with_value = (word, word == "--check-hash-based-pycs") if word.startswith("--") else _letters(word)
        if own:
            found.append(own)
        if own != word:
            break
        if with_value:
            found.extend([following] if (following := next(waiting, None)) is not None else [])
    return found


def _letters(word: str) -> tuple[str, bool]:
    """What comes before `c` or `m`, which name what is run; and whether the next word is the value of the last one."""
    for place, letter in enumerate(word[1:], 1):
        if letter in "cm":
            return (word[:place] if place > 1 else ""), False
        if letter in "WX":
            return word, place == len(word) - 1
    return word, False
