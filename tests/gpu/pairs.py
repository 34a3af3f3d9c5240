"""Whole processes, plain and under flatout in turn: pairs.py PAIRS STEPS OUT.json"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = str(ROOT / "examples" / "behavior.py")


def seconds(command: list[str], folder: str) -> float:
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)
    return time.perf_counter() - began


def main() -> None:
    pairs, steps, out = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    plain = [sys.executable, SCRIPT, "--steps", steps]
    ours = [sys.executable, "-m", "flatout", "run", SCRIPT, "--steps", steps]
    times: dict[str, list[float]] = {"plain": [], "flatout": []}
    with tempfile.TemporaryDirectory() as folder:
        seconds(plain, folder)
        for pair in range(pairs):
            order = [("plain", plain), ("flatout", ours)]
            for name, command in order if pair % 2 == 0 else reversed(order):
                times[name].append(seconds(command, folder))
    record = {"steps": int(steps), **times, "ratio": mean(times["flatout"]) / mean(times["plain"])}
    out.write_text(json.dumps(record, indent=1))
    print(json.dumps(record))


if __name__ == "__main__":
    main()
