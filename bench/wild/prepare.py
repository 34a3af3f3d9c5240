"""Puts the public scripts of scripts.toml into a folder, each at its commit and with its edits.

None of their code is in this repository.

    python bench/wild/prepare.py FOLDER [--clones FOLDER] [--only NAME,NAME]

`--clones` holds clones that are there already (owner/name); without it they come from GitHub. Each script gets a folder
FOLDER/NAME, and one more for each way that people would speed it up by hand: FOLDER/NAME--1, FOLDER/NAME--2.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
PROGRAMS = (".py", ".txt", ".yaml", ".yml", ".json", ".toml", ".cfg")
LARGEST = 2_000_000  # bytes: what is larger is data, and is made up

# In the place of what the scripts import and this bench does not want: a tracker, and a tokenizer that would be downloaded.
STUBS = {
    "wandb": """
class _Run:
    config = type("Config", (), {"update": lambda self, *a, **k: None})()
    def log(self, *a, **k): pass
def init(*a, **k): return _Run()
def Histogram(values, *a, **k): return values.flatten()[:64].tolist()
def Image(values, *a, **k): return values.shape
""",
    "quiet_writer": """
class SummaryWriter:
    def __init__(self, *a, **k): pass
    def add_scalar(self, *a, **k): pass
    def flush(self): pass
""",
    "tiktoken": """
class _Encoding:
    eot_token, n_vocab, max_token_value = 50256, 50257, 50256
    def decode(self, tokens): return " ".join(map(str, tokens))
def get_encoding(name): return _Encoding()
""",
}
# torchvision's CIFAR10 checks the files' sums, which made-up files do not have.
UNCHECKED = """
from torchvision.datasets import CIFAR10 as _CIFAR10
class CIFAR10(_CIFAR10):
    def _check_integrity(self): return True
    def _load_meta(self):
        import os, pickle
        with open(os.path.join(self.root, self.base_folder, "batches.meta"), "rb") as file:
            self.classes = pickle.load(file)["label_names"]
"""


def read_scripts() -> dict[str, dict[str, Any]]:
    return tomllib.loads((HERE / "scripts.toml").read_text(encoding="utf-8"))


def home_of(place: Path, script: dict[str, Any]) -> Path:
    """The folder that the script is started in."""
    return place / script.get("folder", "")


def prepare(name: str, script: dict[str, Any], folder: Path, clones: Path | None) -> None:
    hand = script.get("hand", {})
    for number, edits in enumerate([[], *hand.values()]):
        place = folder / (f"{name}--{number}" if number else name)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        if "own" in script:
            shutil.copytree(PROJECT / script["own"], place, dirs_exist_ok=True)
        else:
            check_out(script, place, clones)
        home = home_of(place, script)
        for stub in script.get("stubs", ()):
            (home / f"{stub}.py").write_text(STUBS[stub], encoding="utf-8")
        (home / "unchecked.py").write_text(UNCHECKED, encoding="utf-8")
        for file, old, new in [*script.get("edits", ()), *edits]:
            if file != "ARGUMENTS":
                edit(home / file, old, new)


def check_out(script: dict[str, Any], place: Path, clones: Path | None) -> None:
    clone = clone_of(script["repository"], place, clones)
    wanted = [script["folder"]] if "folder" in script and "path" not in script else []
    for line in git(clone, "ls-tree", "-r", "-l", script["commit"], "--", *wanted).decode().splitlines():
        facts, path = line.split("\t", 1)
        size = facts.split()[3]
        if path.endswith(PROGRAMS) and size.isdigit() and int(size) < LARGEST:
            file = place / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(git(clone, "show", f"{script['commit']}:{path}"))


def git(clone: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", str(clone), *words], check=True, capture_output=True).stdout


def clone_of(repository: str, place: Path, clones: Path | None) -> Path:
    if clones is not None:
        for candidate in (clones / repository, clones / repository.replace("/", "+") / "repo"):
            if candidate.exists():
                return candidate
        sys.exit(f"{repository} is not in {clones}")
    clone = place.parent / "clones" / repository
    if not clone.exists():
        subprocess.run(["git", "clone", "--quiet", f"https://github.com/{repository}", str(clone)], check=True)
    return clone


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    if old not in text:
        sys.exit(f"{file}: the text to be edited is not there: {old!r}")
    file.write_text(text.replace(old, new), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--only", help="names from scripts.toml, with commas between them")
    arguments = parser.parse_args()
    scripts = read_scripts()
    for name in arguments.only.split(",") if arguments.only else scripts:
        prepare(name, scripts[name], arguments.folder, arguments.clones)
        print(name, flush=True)


if __name__ == "__main__":
    main()
