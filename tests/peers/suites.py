#!/usr/bin/env python3
"""The tests of another project, plainly and under `flatout run`: is the outcome of each the same?

    suites.py --all checkouts --out compared                     every suite that `suites.toml` names, each in checkouts/NAME
    suites.py --all checkouts --out compared --only timm,fabric
    suites.py --folder pytorch/test --python .venv/bin/python --pytest "-k 'not cuda'" --out compared test_optim.py

Fetches nothing: the folders with the tests and an interpreter that can run them are yours. Each suite is run plainly, under
`flatout run`, and plainly once more; what the plain runs do not agree on is called flaky. Ends with 1 where a test has another
outcome because it was observed, where the observed run took more than 5 % longer than the mean of the plain ones, and where
nothing can be said: a run was not done in time, no test was run, or a suite that was asked for is not there.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

Outcomes = dict[str, str]  # test -> passed, failure, error, skipped
LIMIT_S = 1800
MOST_LONGER = 1.05
SHORT_S = 20.0  # of a shorter suite the start is a larger share than anything it shows
NAMED = Path(__file__).with_name("suites.toml")


@dataclass
class Ran:
    outcomes: Outcomes
    wall_s: float
    processor_s: float  # of all its processes: less disturbed by what else the machine does
    exit_code: int | None  # None: it was not done in time

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
        began, busy = time.monotonic(), processor_s()
        with (self.out / f"{name}.txt").open("wb") as log:
            command = [*(observing if observed else [self.python]), *tests]
            try:
                code: int | None = subprocess.run(
                    command, cwd=self.folder, env=environ, stdout=log, stderr=log, timeout=LIMIT_S, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                code = None
        return Ran(read_outcomes(told), time.monotonic() - began, processor_s() - busy, code)


def processor_s() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
    ran = {}
    for name, observed in (("plain", False), ("observed", True), ("plain-again", False)):
        ran[name] = suite.run(name, observed)
        say(name, ran[name])
    return judged(ran["plain"], ran["observed"], ran["plain-again"], suite.out)


def judged(plain: Ran, seen: Ran, again: Ran, out: Path) -> int:
    late = [name for name, one in (("plain", plain), ("observed", seen), ("plain-again", again)) if one.exit_code is None]
    if late:  # what it did not come to has no outcome: that is neither flaky nor changed
        print(f"not compared: {', '.join(late)} not done within {LIMIT_S} s", flush=True)
        return 1
    real, flaky = changed(plain.outcomes, seen.outcomes, again.outcomes)
    for kind, names in (("flaky", flaky), ("CHANGED", real)):
        for name in names:
            print(f"{kind}: {name}: {plain.outcomes.get(name)} -> {seen.outcomes.get(name)}")
    if not plain.outcomes:
        print(f"no test was run: see {out / 'plain.txt'}")
    longer = seen.wall_s / ((plain.wall_s + again.wall_s) / 2)
    busier = seen.processor_s / ((plain.processor_s + again.processor_s) / 2)
    told = f"{len(plain.outcomes)} tests, {len(real)} changed by being observed, {len(flaky)} flaky"
    print(f"{told}; {longer:.3f} times as long, {busier:.3f} times the processor's time", flush=True)
    record = {"tests": len(plain.outcomes), "changed": real, "flaky": flaky, "longer": longer, "busier": busier}
    (out / "compared.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    other_end = plain.exit_code != seen.exit_code and not flaky
    return int(bool(real) or not plain.outcomes or other_end or (longer > MOST_LONGER and plain.wall_s >= SHORT_S))


def say(name: str, ran: Ran) -> None:
    print(f"{name}: exit code {ran.exit_code}, {ran.wall_s:.0f} s, {ran.counted()}", flush=True)


def named(root: Path, only: list[str]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The suites of `suites.toml` that are wanted and there, and the names of those that are wanted and are not."""
    every = tomllib.loads(NAMED.read_text(encoding="utf-8"))
    wanted = only or list(every)
    there = {name: every[name] for name in wanted if name in every and (root / name).is_dir()}
    return there, [name for name in wanted if name not in there]


def compare_all(root: Path, only: list[str], python: str, flatout: str, out: Path) -> int:
    found, missing = named(root, only)
    codes = [int(bool(missing))]
    for name, table in found.items():
        print(f"== {name}", flush=True)
        folder = root / name / table["folder"]
        codes.append(compare(Suite(python, flatout, folder, out / name, table["paths"], table.get("options", []))))
    for name in missing:
        print(f"{name}: not compared, no suite of this name in {root} and {NAMED.name}", flush=True)
    return max(codes)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the suite's packages")
    parser.add_argument("--flatout", default=sys.executable, help="the interpreter that has flatout")
    parser.add_argument("--all", type=Path, metavar="ROOT", help="all suites that suites.toml names, in ROOT/NAME")
    parser.add_argument("--only", default="", help="of these suites, by their names, with commas between")
    parser.add_argument("--folder", type=Path, help="where one suite is run")
    parser.add_argument("--out", type=Path, required=True, help="for logs, outcomes and records")
    parser.add_argument("--pytest", default="", help="further options of pytest, in one word")
    parser.add_argument("paths", nargs="*", help="test files, from the folder on")
    given = parser.parse_args(arguments)
    out = given.out.absolute()
    if given.all is not None:
        only = [name for name in given.only.split(",") if name]
        return compare_all(given.all.absolute(), only, given.python, given.flatout, out)
    if given.folder is None or not given.paths:
        parser.error("either --all, or --folder and the test files")
    return compare(Suite(given.python, given.flatout, given.folder, out, given.paths, shlex.split(given.pytest)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
