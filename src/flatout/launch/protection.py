"""Protection of the user's files from trials: the common interface, and the choice of the strongest kind.

The kinds, the strongest first: an overlay of everything writable (`overlay.py`), Landlock, the guard inside Python
(`python_guard.py`). What a kind does not hold is told by its `gaps`: `tune-gap.<code>` in the catalogue of words.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, Self

from flatout.base.errors import UsageError
from flatout.base.records import Struct
from flatout.launch.changed_files import Watch
from flatout.launch.guard_proof import can_be_guarded
from flatout.launch.landlock import Landlock
from flatout.launch.overlay import Overlay
from flatout.launch.python_guard import Guard

VARIABLE = "FLATOUT_TRIALS"  # names the kind that is wanted, instead of the strongest that can be had


class Kind(StrEnum):
    OVERLAY = "overlay"
    LANDLOCK = "landlock"
    GUARD = "guard"
    NONE = "none"  # asked for by --no-sandbox


class Trying(Struct, frozen=True, kw_only=True):
    """What is to be started under a protection."""

    line: list[str]  # the interpreter and the script's words
    folders: list[Path]  # what it may write to, as far as its words tell
    environ: Mapping[str, str]
    allow_network: bool = False


class Protection(Protocol):
    """A context manager: what it made is gone after it. `ready` is known from its entry on."""

    @property
    def kind(self) -> str: ...

    @property
    def ready(self) -> bool: ...

    @property
    def gaps(self) -> tuple[str, ...]:
        """Codes of what is not held."""

    @property
    def above(self) -> list[Path]:
        """Folders where what trials write lands: there must be room."""

    @property
    def environ(self) -> dict[str, str]:
        """Variables for the child, which count more than the user's own."""

    @property
    def job(self) -> dict[str, Any]:
        """Fields of the agent's job."""

    @property
    def shared_place(self) -> str | None:
        """Where a folder may be made that both sides are to see; None: where temporary folders usually are."""

    def share(self, folder: Path) -> None:
        """A folder of ours that both sides see and write. Said before the first `wrap`."""

    def wrap(self, command: Sequence[str]) -> list[str]:
        """The command inside. Each call begins anew: what an earlier trial wrote is gone."""

    def changed(self) -> list[Path]:
        """Files of the user's that trials changed or removed in spite of it, through one of the gaps."""

    def made(self) -> list[Path]:
        """What is new there, made through one of the gaps."""

    @property
    def watch(self) -> Watch | None:
        """What is compared after each trial; None where there is no need."""

    def refused(self) -> str | None:
        """What a trial was kept from changing, the last one."""

    def limit_met(self, said: str) -> tuple[str, dict[str, str | int]] | None:
        """Code and details (`tune-nothing.<code>`) where the last words of a trial tell of something that this protection
        cannot do, so that the script is not to blame."""

    def overfull(self) -> Path | None:
        """The largest file that the trial at work wrote, once all of them leave too little room."""

    def addresses(self) -> list[str]:
        """Hosts that trials reached from Python, where they may use the network."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Unprotected:
    """Trials write where the script writes."""

    kind: str = Kind.NONE
    ready = True
    gaps: tuple[str, ...] = ()
    watch = None

    def __init__(self) -> None:
        self.above: list[Path] = []
        self.environ: dict[str, str] = {}
        self.job: dict[str, Any] = {}
        self.shared_place: str | None = None

    def __enter__(self) -> Unprotected:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def share(self, folder: Path) -> None:
        pass

    def wrap(self, command: Sequence[str]) -> list[str]:
        return list(command)

    def changed(self) -> list[Path]:
        return []

    def made(self) -> list[Path]:
        return []

    def refused(self) -> str | None:
        return None

    def limit_met(self, said: str) -> tuple[str, dict[str, str | int]] | None:
        return None

    def overfull(self) -> Path | None:
        return None

    def addresses(self) -> list[str]:
        return []


# Tried in this order. None: not for this command, or not on this system.
KINDS: dict[Kind, Callable[[Trying], Protection | None]] = {
    Kind.OVERLAY: lambda trying: Overlay(trying.line, trying.folders, trying.environ, trying.allow_network),
    Kind.LANDLOCK: lambda trying: Landlock(trying.folders, trying.environ, trying.allow_network, trying.line),
    Kind.GUARD: lambda trying: (
        Guard(trying.folders, trying.environ, trying.allow_network, trying.line) if can_be_guarded(trying.line) else None
    ),
}


@contextlib.contextmanager
def choose(trying: Trying) -> Iterator[Protection]:
    """The strongest protection that can be had here, entered."""
    wanted = _wanted(trying.environ)
    for kind, make in KINDS.items():
        protection = make(trying) if wanted in (None, kind) else None
        if protection is None:
            continue
        with protection:
            if protection.ready:
                yield protection
                return
    if wanted is not None:
        raise UsageError("tune.protection-not-had", variable=VARIABLE, kind=wanted.value)
    raise UsageError("tune.no-sandbox", program=trying.line[0], folders=", ".join(map(str, trying.folders)))


def _wanted(environ: Mapping[str, str]) -> Kind | None:
    name = environ.get(VARIABLE, "").strip().lower()
    if not name:
        return None
    if name not in (Kind.OVERLAY, Kind.LANDLOCK, Kind.GUARD):
        raise UsageError("tune.protection-unknown", variable=VARIABLE, value=name)
    return Kind(name)
