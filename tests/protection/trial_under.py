"""Runs one trial under a protection, as `tune` does, and tells what became of it: `trial_under.py KIND SCRIPT ARGS …`."""

import json
import os
import subprocess
import sys
from pathlib import Path

from _flatout_agent.wire import HOSTS, REFUSED_HOSTS
from flatout.launch import protection
from flatout.launch.protection import Trying
from flatout.launch.scratch import Scratch
from flatout.launch.trial_process import TrialChild

LONGEST_S = 240


def words_in(held, name):
    """What the agent told the front in this file."""
    path = Path(held.job.get("write_guard", {}).get("folder", "/nowhere")) / name
    return os.fsdecode(path.read_bytes()).split("\0") if path.exists() else []


def main(kind, *words):
    line = [sys.executable, *words]
    environ = {**os.environ, protection.VARIABLE: kind}
    trying = Trying(line=line, folders=[Path.cwd()], environ=environ, allow_network=bool(os.environ.get("TRY_NETWORK")))
    with protection.choose(trying) as held:
        scratch = Scratch(held.shared_place)
        held.share(scratch.path)
        child = TrialChild(held.wrap(line), {**os.environ, **held.environ}, scratch.path / "1", **held.job)
        try:
            status = child.process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            status = "late"
        child.kill()
        output = (child.folder / "output.txt").read_bytes().decode("utf-8", "replace")
        told = {
            "kind": held.kind,
            "gaps": held.gaps,
            "changed": [str(path) for path in held.changed()],
            "made": [str(path) for path in held.made()],
            "limit": held.limit_met(child.said()),
            "refused": held.refused(),
            "reached_for": words_in(held, REFUSED_HOSTS),
            "hosts": words_in(held, HOSTS),
        }
        scratch.remove()
    print(json.dumps({**told, "status": status, "output": output}))


if __name__ == "__main__":
    main(*sys.argv[1:])
