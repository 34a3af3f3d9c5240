"""Whether processes are still there, and how long they take to begin."""

import math
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

USUAL_START_S = 2.0  # of a process that imports torch


@cache
def slowness():
    """How many times as long as usual a process takes that imports torch: never less than once."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], check=True, timeout=300)
    return max(1.0, (time.monotonic() - began) / USUAL_START_S)


def patient(seconds):
    """A budget in which the same number of processes can be started here."""
    return math.ceil(seconds * slowness())


def gone(pid):
    """Or dead, and nobody has asked after it yet."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return True


def wait_until(what, seconds=20):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def marked(mark):
    """pid -> command line of the living processes that have this word in theirs."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes()
                state = (folder / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
            except OSError:
                continue
            if mark.encode() in words and state != "Z":
                found[int(folder.name)] = words
    return found
