"""Compares the user's files before and after a trial, to find changes that the guard or Landlock did not block.

Compared are folders with all that is below them, the folders that links in them lead to, files in shared memory that lay
there for a while, and of repositories what a commit changes. Who changed something cannot be seen: what others may do
beside the trials is left out as far as it can be told.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from flatout.launch import git_state
from flatout.launch.folder import HOME

UNWATCHED = ("__pycache__", ".git")  # what is told of a repository is told by `repository`
OURS = HOME  # names that begin like this are made by flatout itself
RECORD = "tune.jsonl"  # of a search: it lies in a folder that is written to now
DORMANT_S = 600.0
SEMAPHORE = "sem."  # of POSIX: no data, and Python's tracker removes those of programs that were killed whenever it ends
MOST_FILES, MOST_S = 50_000, 3.0  # beyond, looking would take longer than trying


class State(NamedTuple):
    size: int
    inode: int
    rights: int  # and the kind
    owner: int
    group: int
    written_ns: int  # the last change of its content …
    touched_ns: int  # … and of anything about it
    names: int

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.rights)


Differs = Callable[[str, State, State | None], bool]


class Watch:
    def __init__(self, folders: Iterable[Path], alone: Iterable[str], shared: Path) -> None:
        """`alone`: folders in which others may do what they like. `shared`: of shared memory."""
        self._alone = {os.path.realpath(place) for place in alone}
        self.tops = [os.path.realpath(folder) for folder in folders]
        self.left_out: str | None = None  # the first folder for which there was no time
        self._before: dict[str, State] = {}
        self._looked_into: list[str] = []  # folders of which all is known, and that are not everybody's
        self._look_at_all()
        self._dormant = _dormant(str(shared))
        found = git_state.around(self.tops, [path for path, state in self._before.items() if state.is_folder])
        self._repositories = {place: git_state.told(place) for place in found}

    def leave(self, folder: Path) -> None:
        """It is ours: not compared."""
        self._alone.add(os.path.realpath(folder))

    def changed(self, past: Differs) -> list[Path]:
        """What is other than it was, or gone. `past`: whether a trial can have done that."""
        known = {**self._before, **self._dormant}
        found = [path for path, state in known.items() if (now := _state(path)) != state and self._is_other(state, now)]
        found = [path for path in found if past(path, known[path], _state(path))]
        found += [place for place, before in self._repositories.items() if git_state.told(place) != before]
        return [Path(path) for path in _not_at_work(found)]

    def made(self) -> list[Path]:
        """What is new in the folders that were there; in those that everybody writes to it may be anybody's."""
        found: list[str] = []
        for folder in self._looked_into:
            found += [path for path in self._inside(folder) if path not in self._before and path not in self._alone]
        return [Path(path) for path in _not_at_work(found)]

    def _is_other(self, before: State, now: State | None) -> bool:
        """A folder is what it was, whatever lies in it."""
        if now is None or not before.is_folder:
            return True
        return (now.rights, now.owner, now.group) != (before.rights, before.owner, before.group)

    def _look_at_all(self) -> None:
        waiting, end = list(self.tops), time.monotonic() + MOST_S
        for folder in waiting:  # it grows: the outer ones come first
            self._keep(folder)
            for path in self._inside(folder):
                if len(self._before) > MOST_FILES or time.monotonic() > end:
                    self.left_out = folder
                    return
                waiting += self._next(path)
            if folder in self._before and not self._before[folder].rights & stat.S_IWOTH:
                self._looked_into.append(folder)

    def _next(self, path: str) -> list[str]:
        """What is to be looked at for its sake."""
        state = self._keep(path)
        if state is None:
            return []
        if stat.S_ISLNK(state.rights) and self._is_elsewhere(os.path.realpath(path)):
            path = os.path.realpath(path)
            state = self._keep(path)
        return [path] if state is not None and state.is_folder else []

    def _keep(self, path: str) -> State | None:
        if path in self._before or path in self._alone:
            return None
        state = _state(path)
        if state is not None:
            self._before[path] = state
        return state

    def _is_elsewhere(self, target: str) -> bool:
        """A folder of the system's is none of the user's, and one that holds all of this would never end."""
        if target.startswith(("/proc/", "/dev/", "/sys/", "/usr/", "/etc/")):
            return False
        return not any(f"{top}/".startswith(target.rstrip("/") + "/") for top in self.tops)

    def _inside(self, folder: str) -> Iterator[str]:
        try:
            names = os.listdir(folder)
        except OSError:
            return
        if RECORD in names:
            return
        for name in names:
            if name not in UNWATCHED and not name.startswith(OURS):
                yield os.path.join(folder, name)


def _dormant(shared: str) -> dict[str, State]:
    """Files in shared memory that nobody was at for a while: others come and go with the programs that they belong to."""
    young = (time.time() - DORMANT_S) * 1e9
    found: dict[str, State] = {}
    for inside, _, files in os.walk(shared):
        for name in files[: MOST_FILES - len(found)]:
            state = _state(os.path.join(inside, name))
            if state is not None and state.touched_ns < young and not name.startswith(SEMAPHORE):
                found[os.path.join(inside, name)] = state
    used = _mapped(shared) if found else frozenset()
    return {path: state for path, state in found.items() if path not in used}


def _mapped(shared: str) -> frozenset[str]:
    """Files there that a living program has in its memory, semaphores too: what is written so changes no time of the file."""
    found: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            lines = maps.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
            found.update(line[line.index(f"{shared}/") :] for line in lines if f" {shared}/" in line)
    return frozenset(found)


def _not_at_work(paths: Collection[str]) -> list[str]:
    """Without the files that a living process writes to: the trial is gone, so that it is another's."""
    if not paths or sys.platform != "linux":
        return list(paths)
    written: set[str] = set()
    for process in os.listdir("/proc"):
        if process.isdigit() and process != str(os.getpid()):
            with contextlib.suppress(OSError):
                written.update(path for path in _written_by(f"/proc/{process}/fd") if path in paths)
    return [path for path in paths if path not in written]


def _written_by(descriptors: str) -> Iterator[str]:
    for number in os.listdir(descriptors):
        with contextlib.suppress(OSError):
            opened = os.path.join(descriptors, number)
            if os.lstat(opened).st_mode & stat.S_IWUSR:  # so the kernel tells what it was opened for
                yield os.readlink(opened)


def _state(path: str) -> State | None:
    try:
        told = os.lstat(path)
    except OSError:
        return None
    owner, group = told.st_uid, told.st_gid
    return State(told.st_size, told.st_ino, told.st_mode, owner, group, told.st_mtime_ns, told.st_ctime_ns, told.st_nlink)
