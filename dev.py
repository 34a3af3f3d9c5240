#!/usr/bin/env python3
"""Set-up, demo and tests of flatout on a fresh machine. Standard library only.

    python3 dev.py demo                   show flatout on whatever device is there
    python3 dev.py test                   linters, types, walls, all tests
    python3 dev.py test --torch 2.4.1     the tests of agent, knobs and library on another torch, in an environment of its own
    python3 dev.py test --lowest          the front's tests on the oldest dependencies that pyproject.toml allows
    python3 dev.py test -- -k words       what follows -- goes to pytest
    python3 dev.py test --quick           what decides, without linters: no test that starts a process, two minutes at most
    python3 dev.py test --thorough        the few that take long and rarely tell anything new
    python3 dev.py lint                   linters and types alone
    python3 dev.py prepare --torch 2.4.1  only the environments, all that are named at the same time

Environments are kept beside this file (.venv*); nothing is installed again while nothing has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
CONSTRAINTS = ROOT / "constraints.txt"
OLDEST_PYTHON = (3, 11)
# What depends on torch itself: the hooks, and every style of script under them.
ON_ANOTHER_TORCH = ["tests/agent", "tests/run/test_specimens.py", "tests/run/test_styles.py", "tests/run/test_scripts.py"]
WITH_KNOBS = ["tests/apply", "tests/api"]  # need torch 2.4
SPECIMENS_NEED = ["numpy", "pillow", "pyyaml"]
# The folders whose tests mostly start nothing; of these, the files in which none does.
QUICK = ("front", "doctor", "knobs", "machine", "tune", "watch", "wild")
STARTS = re.compile(
    r'importorskip\("torch"\)|^import (?:subprocess|multiprocessing)'
    r"|^def \w+\([^)]*\b(?:flatout|plain|script|forks|overlay_for)\b",
    re.MULTILINE,
)


def say(text: str) -> None:
    print(f"\n== {text}", flush=True)


SIDE_BY_SIDE = ("-n", "2", "--dist", "worksteal")  # the long ones come last: whoever is done takes some of the other's
# One of them waits for its processes; each test goes to whoever is free, for some take half a minute.
CROWDED = ("-n", str((os.cpu_count() or 1) + 1), "--dist", "load", "--maxschedchunk", "1")
NO_TESTS = 5  # pytest's exit code where none was chosen


def run(*command: str | Path, fine: tuple[int, ...] = (0,)) -> None:
    """Run to the end in the project's folder; a failure ends us with its own code."""
    # Packages are installed without compiling them: Python keeps what it compiles when it first imports a file, if it may.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    code = subprocess.call([str(word) for word in command], cwd=ROOT, env=environ)
    if code not in fine:
        say(f"failed: {' '.join(str(word) for word in command)}")
        sys.exit(code)


def project() -> dict[str, list[str]]:
    import tomllib

    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {"dependencies": table["project"]["dependencies"], "dev": table["dependency-groups"]["dev"]}


def own_torch() -> bool:
    """Whether the interpreter that runs this file has a torch: then that one is used, GPU build and all."""
    import importlib.util

    return importlib.util.find_spec("torch") is not None


class Environment:
    """A virtual environment that is made once, and again when what it is made of changes."""

    def __init__(self, name: str, packages: list[str], constrained: bool, system: bool = False) -> None:
        self.folder = ROOT / name
        self.packages = packages
        self.constrained = constrained
        self.system = system

    @property
    def python(self) -> Path:
        return self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def prepare(self) -> Environment:
        stamp = self.folder / "flatout-stamp"
        wanted = self._wanted()
        if stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
            return self
        say(f"setting up {self.folder.name} (once; a few minutes where torch must be fetched)")
        venv.create(self.folder, with_pip=True, clear=True, system_site_packages=self.system)
        limits = ["--constraint", CONSTRAINTS] if self.constrained else []
        # Of torch's thousands of files a test imports a few hundred: these are compiled when they are imported.
        install = (self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
        run(*install, *limits, *self.packages)
        run(*install, "--no-deps", "--editable", ROOT)
        stamp.write_text(wanted, encoding="ascii")
        return self

    def _wanted(self) -> str:
        parts = [sys.version, sys.executable, str(self.system), *self.packages]
        parts += [(ROOT / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "constraints.txt")]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def main_environment() -> Environment:
    parts = project()
    have = own_torch()
    torch = [] if have else ["torch"]
    return Environment(".venv", [*parts["dependencies"], *parts["dev"], *torch, *SPECIMENS_NEED], True, system=have)


def release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def other_torch(version: str) -> Environment:
    numpy = "numpy<2" if release(version) < (2, 3) else "numpy<2.3"  # older ones are built for numpy 1
    packages = [
        *project()["dependencies"],
        "hypothesis",
        "pytest",
        "pytest-timeout",
        "pytest-xdist",
        f"torch=={version}",
        numpy,
    ]
    return Environment(f".venv-torch-{version}", [*packages, "pillow", "pyyaml"], constrained=False)


def lowest() -> Environment:
    pinned = [re.sub(r">=([0-9.]+)(,.*)?$", r"==\1", requirement) for requirement in project()["dependencies"]]
    return Environment(".venv-lowest", [*pinned, "pytest", "pytest-timeout", "hypothesis", "jsonschema"], constrained=False)


def prepare(torch: str | None, with_lowest: bool, with_main: bool) -> None:
    """Mostly fetching and unpacking: one waits while another works."""
    from concurrent.futures import ThreadPoolExecutor

    wanted = [
        *([main_environment()] if with_main else []),
        *([other_torch(torch)] if torch else []),
        *([lowest()] if with_lowest else []),
    ]
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(environment.prepare) for environment in wanted]:
            done.result()


def demo() -> None:
    flatout = [main_environment().prepare().python, "-m", "flatout"]
    say("flatout facts")
    run(*flatout, "facts")
    say("flatout doctor (exit code 1 means that it found something)")
    subprocess.call([str(word) for word in (*flatout, "doctor")], cwd=ROOT)
    say("flatout run examples/restoration.py --small --steps 100")
    run(*flatout, "run", "examples/restoration.py", "--small", "--steps", "100", "--out", ".flatout/demo_out")
    say("flatout tune examples/restoration.py --small (two minutes: trials inside the running script)")
    profile = ROOT / "examples" / "flatout.toml"
    kept = profile.read_bytes() if profile.exists() else None
    try:
        run(*flatout, "tune", "--budget", "90s", "examples/restoration.py", "--small", "--epochs", "1000")
    finally:  # the demo leaves the examples as they were
        profile.unlink(missing_ok=True)
        if kept is not None:
            profile.write_bytes(kept)


def run_tests(python: Path, *arguments: str) -> None:
    """Those that measure time first and by themselves, then those that mostly sleep beside their like, then the rest."""
    if not any(word.startswith("-") for word in arguments):
        for mark, together in (("alone", ()), ("calm", SIDE_BY_SIDE)):
            some = arguments or files_with(mark)  # thousands of others need not be imported for these few
            chosen = f"{mark} and not gpu and not thorough"
            run(python, "-m", "pytest", "-q", *together, "-m", chosen, *some, fine=(0, NO_TESTS))
        arguments = (*CROWDED, "-m", "not alone and not calm and not gpu and not thorough", *arguments)
    run(python, "-m", "pytest", "-q", *arguments)


def files_with(mark: str) -> tuple[str, ...]:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return tuple(str(file) for file in files if f"mark.{mark}" in file.read_text(encoding="utf-8"))


def quick_files() -> list[str]:
    files = [file for name in QUICK for file in sorted((ROOT / "tests" / name).rglob("test_*.py"))]
    return [str(file) for file in files if not STARTS.search(file.read_text(encoding="utf-8"))]


def quick(pytest_arguments: list[str]) -> None:
    python = main_environment().prepare().python
    chosen = ("-m", "not alone and not calm and not gpu and not thorough")
    run(python, "-m", "pytest", "-q", *SIDE_BY_SIDE, *chosen, *quick_files(), *pytest_arguments)


def lint() -> Path:
    python = main_environment().prepare().python
    say("ruff")
    run(python, "-m", "ruff", "check", ".")
    run(python, "-m", "ruff", "format", "--check", ".")
    say("mypy --strict")
    run(python, "-m", "mypy")
    return python


def test(torch: str | None, only_lowest: bool, pytest_arguments: list[str]) -> None:
    if torch:
        python = other_torch(torch).prepare().python
        say(f"the agent's tests on torch {torch}")
        knobs = WITH_KNOBS if release(torch) >= (2, 4) else []
        run_tests(python, *(pytest_arguments or [*ON_ANOTHER_TORCH, *knobs]))
        return
    if only_lowest:
        python = lowest().prepare().python
        say("the front's tests on the oldest dependencies")
        run(python, "-m", "pytest", "-q", "tests/front", *pytest_arguments)
        return
    python = lint()
    say("pytest (the walls are among the tests)")
    run_tests(python, *pytest_arguments)


def main() -> None:
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(f"flatout needs Python {'.'.join(map(str, OLDEST_PYTHON))} or newer; this is {sys.version.split()[0]}.")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo", help="show flatout on whatever device is there")
    testing = commands.add_parser("test", help="linters, types, walls, all tests")
    testing.add_argument("--torch", metavar="VERSION", help="the agent's tests on this torch")
    testing.add_argument("--lowest", action="store_true", help="the front's tests on the oldest dependencies")
    testing.add_argument("--quick", action="store_true", help="only those that start no process, without linters")
    testing.add_argument("--thorough", action="store_true", help="only those that take long and rarely tell anything new")
    testing.add_argument("pytest_arguments", nargs="*", metavar="PYTEST ARGUMENTS", help="after --")
    commands.add_parser("lint", help="linters and types alone")
    preparing = commands.add_parser("prepare", help="the environments of the tests, side by side")
    preparing.add_argument("--torch", metavar="VERSION", help="also that of this torch")
    preparing.add_argument("--lowest", action="store_true", help="also that of the oldest dependencies")
    preparing.add_argument("--without-main", action="store_true", help="only those that are named")
    arguments = parser.parse_args()
    began = time.monotonic()
    if arguments.command == "demo":
        demo()
    elif arguments.command == "lint":
        lint()
    elif arguments.command == "prepare":
        prepare(arguments.torch, arguments.lowest, not arguments.without_main)
    elif arguments.quick:
        quick(arguments.pytest_arguments)
    else:
        thorough = ["-m", "thorough and not gpu"] if arguments.thorough else []
        test(arguments.torch, arguments.lowest, [*thorough, *arguments.pytest_arguments])
    say(f"done in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
