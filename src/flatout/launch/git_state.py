"""The state of a git repository that commits, branches and `git add` change; read from its files without running git.

Looking (`git status`, `git diff`) rewrites its index with other times, and tidying up packs its references: neither is a
change. What was fetched (`refs/remotes`) is not looked at.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

FOLDER = ".git"
KEPT = ("HEAD", "config")
FETCHED = "refs/remotes/"
ENTRY = 62  # bytes of an entry of the index before its name …
NAMED = slice(24, 28), slice(40, 60)  # … of which the rights and the content's name are no matter of time
VERSION = 2  # of an index whose entries are read one by one


def around(tops: Iterable[str], folders: Sequence[str]) -> list[str]:
    """The repositories that these folders belong to, and those in them."""
    above = [str(parent) for top in tops for parent in Path(top).parents]
    places = [os.path.join(folder, FOLDER) for folder in dict.fromkeys([*folders, *above])]
    return [place for place in places if os.path.isfile(os.path.join(place, "HEAD"))]


def told(place: str) -> dict[str, object]:
    names = {name: _content(os.path.join(place, name)) for name in KEPT}
    return {**names, **_references(place), "index": _staged(_content(os.path.join(place, "index")))}


def _references(place: str) -> dict[str, bytes]:
    """Name -> commit, wherever it stands; in a file of its own it counts more."""
    found: dict[str, bytes] = {}
    for line in _content(os.path.join(place, "packed-refs")).splitlines():
        commit, _, named = line.partition(b" ")
        if named and not line.startswith((b"#", b"^")):
            found[os.fsdecode(named)] = commit
    for inside, _, files in os.walk(os.path.join(place, "refs")):
        for name in files:
            path = os.path.join(inside, name)
            found[os.path.relpath(path, place)] = _content(path).strip()
    return {name: commit for name, commit in found.items() if not name.startswith(FETCHED)}


def _staged(index: bytes) -> object:
    """What is to be committed next; of an index that is not understood, its size."""
    if len(index) < 12 or index[:4] != b"DIRC":
        return len(index)
    version, count = struct.unpack(">II", index[4:12])
    if version != VERSION:
        return len(index)
    seen, at = hashlib.sha256(), 12
    for _ in range(count):
        end = index.find(b"\0", at + ENTRY)
        if end < 0:
            return len(index)
        for part in NAMED:
            seen.update(index[at + part.start : at + part.stop])
        seen.update(index[at + ENTRY : end])
        at += (end - at) // 8 * 8 + 8
    return seen.hexdigest()


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
