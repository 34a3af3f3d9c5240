"""The guard: redirects files that a trial's Python writes into the trial's folder, and refuses the rest.

It sees what Python itself calls. After each child the files are looked at: libraries and other programs may write past it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from _flatout_agent import wire
from _flatout_agent.wire import HOSTS, REFUSED, REFUSED_HOSTS, REFUSED_WORDS
from flatout.launch import folder, guard_proof
from flatout.launch.changed_files import State, Watch
from flatout.launch.compiled import caches, user_cache
from flatout.launch.overlay import DOWNLOADS
from flatout.launch.own_output import own_output
from flatout.launch.reaper import remove
from flatout.launch.scratch import LONGEST_TEMPORARY, SHARED_MEMORY, Scratch
from flatout.launch.trial_messages import network_limit, told

DATABASE = re.compile(r"DatabaseError: (not authorized|authorization denied)")  # SQLite, of one that was to be attached
NOT_FOUND = re.compile(r"No such file|not found|does not exist|[Ee]rrno 2\b|os error 2\b|ENOENT|cannot find|[Ff]ailed to open")
NAMED = re.compile(r"(?<=')[^']+|(?<=\")[^\"]+|[^\s'\"<>|]*/[^\s'\"<>|]+")  # what may be a path
LAST_LINES, LINES_OF_PROGRAMS = 3, 60
PROGRAM_FAILED = re.compile(r"returned non-zero exit status|died with <Signals")
RESERVE = 1 << 30  # bytes that stay free on the disk; half of what is free where that is less


class Guard:
    """A `Protection`. Nothing of the user's is written to: neither what exists nor what is new."""

    kind = "guard"
    starts_all = False  # other programs are not held

    def __init__(
        self, folders: Iterable[Path], environ: Mapping[str, str], network: bool = False, line: Sequence[str] = ()
    ) -> None:
        """`line`: the command whose interpreter is to prove that the guard is on in it."""
        self.ready = True
        self._line = line
        self._caches: dict[str, str] = {}
        self.network = network
        self._user_environ = environ
        self._reserve = 0
        self.folders = list(folders)
        self.above: list[Path] = []
        self.environ: dict[str, str] = {}
        self.shared_place: str | None = None
        self._addresses: list[str] = []  # that trials before the last one opened
        self._shared: list[Path] = []
        self.watch: Watch | None = None
        self._scratch: Scratch | None = None

    @property
    def gaps(self) -> tuple[str, ...]:
        """Codes of what is not held."""
        network = () if self.network else ("guard-network",)
        files = ("guard-libraries-windows", "guard-new-files") if sys.platform == "win32" else ("guard-libraries",)
        return (*files, "guard-programs", "sockets", *network, "daemons")

    def __enter__(self) -> Guard:
        self._scratch = _short_scratch()
        self.above = [self._scratch.path]
        temporary = str(self._scratch.path / "t")
        self._caches = caches(self._user_environ, self.folders)
        self.environ = {"TMPDIR": temporary, "TEMP": temporary, "TMP": temporary, **self._caches}
        self._begin_anew()
        self.ready = not self._line or self._is_on()
        alone = [*map(str, self.free), str(folder.records_of(Path.cwd(), self._user_environ))]
        self.watch = Watch(self.folders, alone, Path(SHARED_MEMORY))
        return self

    def __exit__(self, *_: object) -> None:
        if self._scratch is not None:
            self._scratch.remove()

    @property
    def free(self) -> list[Path]:
        """What the trial may write to as it is: folders of ours, and what compilers keep for the next time."""
        return [*self.above, *self._shared, *map(Path, self._caches.values())]

    @property
    def job(self) -> dict[str, Any]:
        """Fields of the agent's job."""
        if sys.platform == "win32":
            return {"veto": str(self._own), "network_guard": {"folder": str(self._own), "network": self.network}}
        wanted = {
            "folder": str(self._own),
            "free": [os.path.realpath(place) for place in self.free],
            "network": self.network,
            "starts_all": self.starts_all,
            "began_ns": time.time_ns(),
        }
        return {"write_guard": wanted}

    def _is_on(self) -> bool:
        """Nothing but the trial's own folder is free: what is planted lies beside it."""
        job = {name: {**wanted, "free": []} if name == "write_guard" else wanted for name, wanted in self.job.items()}
        return guard_proof.is_on(self._line, {**self._user_environ, **self.environ}, job, self.above[0])

    def share(self, folder: Path) -> None:
        self._shared.append(folder)
        if self.watch is not None:
            self.watch.leave(folder)

    def wrap(self, command: Sequence[str]) -> list[str]:
        """The command, with what an earlier one wrote gone."""
        self._addresses = self.addresses()
        self._begin_anew()
        return list(command)

    def changed(self) -> list[Path]:
        """Past the guard, or Landlock: by a library in C, or by another program."""
        return _without_own_output(self.watch.changed(self._is_past)) if self.watch is not None else []

    def made(self) -> list[Path]:
        return _without_own_output(self.watch.made()) if self.watch is not None and sys.platform != "win32" else []

    def _is_past(self, path: str, before: State, now: State | None) -> bool:
        """Whether a trial can have done it: other programs and libraries in C do what they like here."""
        return True

    def addresses(self) -> list[str]:
        """What trials reached by Python's sockets, where they may."""
        return list(dict.fromkeys([*self._addresses, *self._told(HOSTS)]))

    def refused(self) -> str | None:
        """What the last trial was kept from changing; the last of it."""
        words = self._told(REFUSED)
        return words[-1] if words else None

    def limit_met(self, said: str) -> tuple[str, dict[str, str | int]] | None:
        """What ended a trial, if not the script's own fault. It may go on after a refusal, and fail by itself."""
        files = self._told(REFUSED)
        if files and (REFUSED_WORDS in said or DATABASE.search(said)):
            return "refused", {"path": files[-1]}
        network = network_limit(self._told(REFUSED_HOSTS), said)
        aside = None if network else self._not_found(said)
        return network or (("led-aside", {"path": aside}) if aside is not None else None)

    def _not_found(self, said: str) -> str | None:
        """What Python wrote into the trial's folder, and a library in C or another program looked for in vain."""
        lines = last_lines(said)
        found: list[str] = [word for line in lines if NOT_FOUND.search(line) for word in NAMED.findall(line)]
        for word in found:
            path = os.path.abspath(word.rstrip(".:,"))
            if path != "/" and not os.path.exists(path) and (self._own / "files" / path.lstrip("/")).exists():
                return path
        return None

    def overfull(self) -> Path | None:
        """What is opened for writing is copied first."""
        if shutil.disk_usage(self._own).free > self._reserve:
            return None
        top = self._own / "files"
        sizes = {path: path.lstat().st_size for path in top.rglob("*") if path.is_file() and not path.is_symlink()}
        return Path("/") / max(sizes, key=sizes.__getitem__).relative_to(top) if sizes else None

    @property
    def _own(self) -> Path:
        return self.above[0] / "trial"

    def _begin_anew(self) -> None:
        """What was downloaded lasts one search."""
        files, aside = self._own / "files", self.above[0] / "downloads"
        found = [place for place in self._downloads() if (files / place.relative_to("/")).is_dir()]
        for number, place in enumerate(found):
            aside.mkdir(exist_ok=True)
            os.replace(files / place.relative_to("/"), aside / str(number))
        for own in (self._own, Path(self.environ["TMPDIR"])):
            remove(str(own))
            own.mkdir(mode=0o700, exist_ok=True)
        for number, place in enumerate(found):
            (files / place.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
            os.replace(aside / str(number), files / place.relative_to("/"))
            with (self._own / wire.FILES_LOG).open("ab") as log:
                log.write(wire.FILE_MADE.encode("ascii") + os.fsencode(place) + b"\0")
        self._reserve = min(RESERVE, shutil.disk_usage(self._own).free // 2)

    def _downloads(self) -> list[Path]:
        if sys.platform == "win32":
            return []
        cache, named = user_cache(self._user_environ), [self._user_environ.get(name, "") for name in DOWNLOADS]
        folders = [*([cache] if cache else ()), *(Path(name) for name in named if os.path.isabs(name))]
        places = dict.fromkeys(folder.resolve() for folder in folders)
        return [folder for folder in places if not any(other in folder.parents for other in places)]

    def _told(self, name: str) -> list[str]:
        return told(self._own / name)


def last_lines(said: str) -> list[str]:
    """What tells of its end. What a program said that the script started and waited for stands before the traceback."""
    lines = [line.strip() for line in said.strip().splitlines() if line.strip()]
    waited = bool(lines) and bool(PROGRAM_FAILED.search(lines[-1]))
    return lines[-LINES_OF_PROGRAMS if waited else -LAST_LINES :]


def _short_scratch() -> Scratch:
    """The names of sockets in the trial's temporary folder may have 108 characters."""
    usual = tempfile.gettempdir()
    return Scratch("/tmp" if len(usual) > LONGEST_TEMPORARY // 2 and os.access("/tmp", os.W_OK) else None)


def _without_own_output(found: list[Path]) -> list[Path]:
    """`flatout tune train.py > log.txt` writes there itself."""
    ours = own_output() if found else set()
    return [path for path in found if not (path.is_file() and (path.stat().st_dev, path.stat().st_ino) in ours)]
