"""Plain trainings in forks of one process that has torch already: importing it is most of what a small training takes."""

import json
import os
import subprocess
import sys
from pathlib import Path

SERVER = Path(__file__).parents[1] / "knobs" / "style_fork.py"

# Processes of their own, an interpreter's own options, or libraries that must be imported after the agent.
WHOLE = (
    "torchrun",
    "distributed-launch",
    "lightning",
    "transformers",
    "accelerate",
    "accelerate-launch",
    "isolated",
    "torch-profiler",  # it prints the frames below the script, and a fork has others
)


class Forks:
    """A server of forks with torch in them."""

    def __init__(self):
        self._server = subprocess.Popen(
            [sys.executable, str(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stdin.close()
        self._server.wait(60)
        self._server.stdout.close()

    def run(self, request):
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())
