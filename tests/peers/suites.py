#!/usr/bin/env python3
"""The tests of another project, plainly and under `flatout run`: is the outcome of each the same?

    suites.py --folder accelerate-1.15.0 --out compared tests/test_optimizer.py tests/test_scheduler.py
    suites.py --folder pytorch/test --python .venv/bin/python --pytest "-k 'not cuda'" test_optim.py

Fetches nothing: the folder with the tests and an interpreter that can run them are yours. What differs is run plainly once
more, and what differs there too is called flaky. Ends with 1 where a test has another outcome because it was observed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

Outcomes = dict[str, str]  # test -> passed, failure, error, skipped
LIMIT_S = 1800


@dataclass
class Ran:
    outcomes: Outcomes
    wall_s: float
    exit_code: int

    def counted(self) -> dict[str, int]:
        kinds = list(self.outcomes.values())
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


@dataclass
class Suite:
    python: str
    flatout: str
    folder: Path
    out: Path
    paths: list[str]
    options: list[str]

    def run(self, name: str, observed: bool) -> Ran:
        """Its tests once, in a process of their own; what they print goes to `out/NAME.txt`."""
        told = self.out / f"{name}.xml"
        told.unlink(missing_ok=True)
        # No cache: a second run is not to be told of the first.
        tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml", str(told), *self.options, *self.paths]
        observing = [self.flatout, "-m", "flatout", "run", "--python", self.python]
        environ = {**os.environ, "PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": ""}
        # Not among the files of the suite: tests count what lies there.
        environ["FLATOUT_RECORDS"] = str(self.out / "records")
        began = time.monotonic()
        with (self.out / f"{name}.txt").open("wb") as log:
            command = [*(observing if observed else [self.python]), *tests]
            ended = subprocess.run(command, cwd=self.folder, env=environ, stdout=log, stderr=log, timeout=LIMIT_S, check=False)
        return Ran(read_outcomes(told), time.monotonic() - began, ended.returncode)


def read_outcomes(path: Path) -> Outcomes:
    """Of a JUnit file. Names that occur more than once are numbered: pytest gives one to subtests, too."""
    found: Outcomes = {}
    for case in ElementTree.parse(path).iter("testcase") if path.exists() else ():
        name = f"{case.get('classname')}::{case.get('name')}"
        times = sum(known == name or known.startswith(f"{name} #") for known in found) if name in found else 0
        ended = next((part.tag for part in case if part.tag in ("failure", "error", "skipped")), "passed")
        found[f"{name} #{times + 1}" if times else name] = ended
    return found


def differing(one: Outcomes, other: Outcomes) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def changed(plain: Outcomes, seen: Outcomes, again: Outcomes) -> tuple[list[str], list[str]]:
    """(changed by being observed, flaky): what two plain runs do not agree on says nothing."""
    flaky = set(differing(plain, again))
    found = differing(plain, seen)
    return [name for name in found if name not in flaky], [name for name in found if name in flaky]


def compare(suite: Suite) -> int:
    suite.out.mkdir(parents=True, exist_ok=True)
    plain = suite.run("plain", observed=False)
    say("plain", plain)
    seen = suite.run("observed", observed=True)
    say("observed", seen)
    again = plain
    if differing(plain.outcomes, seen.outcomes):
        again = suite.run("again", observed=False)
        say("plain again", again)
    real, flaky = changed(plain.outcomes, seen.outcomes, again.outcomes)
    for kind, names in (("flaky", flaky), ("CHANGED", real)):
        for name in names:
            print(f"{kind}: {name}: {plain.outcomes.get(name)} -> {seen.outcomes.get(name)}")
    ratio = seen.wall_s / min(plain.wall_s, again.wall_s)
    if not plain.outcomes:
        print(f"no test was run: see {suite.out / 'plain.txt'}")
    print(f"{len(plain.outcomes)} tests, {len(real)} changed by being observed, {len(flaky)} flaky, {ratio:.3f} times as long")
    record = {"tests": len(plain.outcomes), "changed": real, "flaky": flaky, "plain_s": plain.wall_s, "observed_s": seen.wall_s}
    (suite.out / "compared.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    return int(bool(real) or not plain.outcomes or (plain.exit_code != seen.exit_code and not flaky))


def say(name: str, ran: Ran) -> None:
    print(f"{name}: exit code {ran.exit_code}, {ran.wall_s:.0f} s, {ran.counted()}", flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the suite's packages")
    parser.add_argument("--flatout", default=sys.executable, help="the interpreter that has flatout")
    parser.add_argument("--folder", type=Path, required=True, help="where the suite is run")
    parser.add_argument("--out", type=Path, required=True, help="for logs, outcomes and records")
    parser.add_argument("--pytest", default="", help="further options of pytest, in one word")
    parser.add_argument("paths", nargs="+", help="test files, from the folder on")
    given = parser.parse_args(arguments)
    out = given.out.absolute()
    return compare(Suite(given.python, given.flatout, given.folder, out, given.paths, shlex.split(given.pytest)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
