"""Whole runs of public scripts, plain and under the profile that `flatout tune` left: what was promised and what was delivered.

    python bench/wild/measure.py FOLDER --out RESULTS.jsonl [--only NAME,NAME] [--pairs 3] [--budget 90s] [--no-hand]

FOLDER is what prepare.py made. Each line of RESULTS.jsonl is one run; a run that stands there already is not made again, so a
measurement that was broken off goes on. The table at the end is made from that file alone (`--table` prints only that).
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import made_up_data
from prepare import home_of, read_scripts
from table import table

LONGEST_S = 420.0
TAIL = 3000


class Results:
    """The runs made so far, on the disk after each."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        self.runs: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]

    def of(self, name: str, kind: str) -> list[dict[str, Any]]:
        return [run for run in self.runs if run["script"] == name and run["kind"] == kind]

    def add(self, **run: Any) -> None:
        self.runs.append(run)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run) + "\n")
        print(json.dumps({key: value for key, value in run.items() if key not in ("said", "tune", "summary")}), flush=True)


def measure(name: str, script: dict[str, Any], folder: Path, results: Results, asked: argparse.Namespace) -> None:
    home = home_of(folder / name, script)
    for kind, place in script.get("data", ()):
        made_up_data.make(kind, home / place)
    plain = [sys.executable, *script["command"]]
    flatout = [sys.executable, "-m", "flatout"]
    tuned = [*flatout, "run", *script["command"]]
    profile = home / "flatout.toml"

    def until(count: int, kind: str, command: list[str]) -> None:
        while len(results.of(name, kind)) < count:
            once(results, name, kind, command, home, script)

    until(1, "plain", plain)
    if not results.of(name, "tune"):
        profile.unlink(missing_ok=True)
        budget = ["--budget", asked.budget] if asked.budget else []
        once(results, name, "tune", [*flatout, "tune", *budget, "--json", *script["command"]], home, script)
    for pair in range(1, asked.pairs + 1):
        until(pair, "tuned", tuned)
        until(pair, "plain", plain)
    if asked.observed:
        aside = profile.rename(home / "flatout.toml.aside") if profile.exists() else None
        until(1, "observed", tuned)
        if aside is not None:
            aside.rename(profile)
    if asked.hand:
        measure_by_hand(name, script, folder, results)


def measure_by_hand(name: str, script: dict[str, Any], folder: Path, results: Results) -> None:
    home = home_of(folder / name, script)
    for number, (how, edits) in enumerate(script.get("hand", {}).items(), 1):
        by_hand = home_of(folder / f"{name}--{number}", script)
        for _, place in script.get("data", ()):
            if not (by_hand / place).exists():
                (by_hand / place).parent.mkdir(parents=True, exist_ok=True)
                (by_hand / place).symlink_to((home / place).resolve())
        if not results.of(name, f"hand: {how}"):
            once(results, name, f"hand: {how}", [sys.executable, *arguments_of(script, edits)], by_hand, script)


def arguments_of(script: dict[str, Any], edits: list[list[str]]) -> list[str]:
    line = shlex.join(script["command"])
    for file, old, new in edits:
        line = line.replace(old, new) if file == "ARGUMENTS" else line
    return shlex.split(line)


def once(results: Results, name: str, kind: str, command: list[str], home: Path, script: dict[str, Any]) -> None:
    """One run from start to exit."""
    records = home / ".flatout"
    if kind != "tune":
        shutil.rmtree(records, ignore_errors=True)
    more = [str((home / place).resolve()) for place in script.get("path", ())]
    path = os.pathsep.join([*more, *filter(None, [os.environ.get("PYTHONPATH")])])
    began = time.monotonic()
    code, out, err = run_in_terminal(command, home, {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"})
    seconds = time.monotonic() - began
    run: dict[str, Any] = {"script": name, "kind": kind, "seconds": round(seconds, 2), "code": code, "said": err[-TAIL:]}
    if "step" in script:
        steps = [float(found) for found in re.findall(script["step"], out)]
        run["step_ms"] = round(statistics.median(steps), 3) if steps else None
    if kind == "tune":
        run["tune"] = last_record(records, "tune.json")
    elif kind in ("tuned", "observed"):
        summary = last_record(records, "summary.json")
        run["summary"] = {key: summary.get(key) for key in ("phases", "parts", "promise", "knobs", "wall_s", "samples_per_s")}
        run["unexplained"] = share_of(summary.get("phases"), "unexplained", seconds)
    if code:
        run["said"] = (out + err)[-TAIL:]
    results.add(**run)


def last_record(records: Path, name: str) -> dict[str, Any]:
    found = sorted(records.rglob(name), key=lambda file: file.stat().st_mtime)
    return json.loads(found[-1].read_text(encoding="utf-8")) if found else {}


def share_of(phases: dict[str, float] | None, name: str, seconds: float) -> float | None:
    return round(phases[name] / seconds, 4) if phases and name in phases else None


def run_in_terminal(command: list[str], home: Path, environ: dict[str, str]) -> tuple[int, str, str]:
    """With a terminal as its standard input: some scripts ask for its size. Output goes to pipes."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        command, cwd=home, env=environ, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    os.close(theirs)
    stop = threading.Timer(LONGEST_S, child.kill)
    stop.start()
    try:
        out, err = child.communicate()
    finally:
        stop.cancel()
        os.close(ours)
    return child.returncode, out.decode(errors="replace"), err.decode(errors="replace")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", help="names from scripts.toml, with commas between them")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--budget", help="of flatout tune; without it tune's own")
    parser.add_argument("--no-hand", dest="hand", action="store_false")
    parser.add_argument("--observed", action="store_true", help="also `flatout run` without settings")
    parser.add_argument("--table", action="store_true", help="only the table of what is there")
    asked = parser.parse_args()
    results, scripts = Results(asked.out), read_scripts()
    for name in () if asked.table else (asked.only.split(",") if asked.only else scripts):
        measure(name, scripts[name], asked.folder, results, asked)
    print(table(results.runs))


if __name__ == "__main__":
    main()
