"""Where the history is stored, and which process may write it: one per user and host, on a local disk.

SQLite's write-ahead log needs memory that all its users share, which no network file system gives: there it would be damaged
sooner or later. So such a folder is refused, and what was not kept is said.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from flatout.base.records import Missing, Struct, field
from flatout.launch.folder import state_folder
from flatout.machine import host
from flatout.measure.model import Note

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

VARIABLE = "FLATOUT_HISTORY"  # a folder
FOLDER = "history"

# As the kernels name them. One that is not known counts as local, but for those of user programs whose name tells.
NETWORKS = (
    "nfs", "cifs", "smb", "afs", "ncp", "lustre", "gpfs", "beegfs", "ceph", "gluster", "pvfs", "panfs", "weka", "9p", "afp",
    "webdav", "dav", "sshfs", "s3", "gcs", "rclone", "remote", "juicefs", "orangefs", "ocfs", "gfs2", "wekafs", "virtiofs",
)  # fmt: skip


class Place(Struct, frozen=True, kw_only=True):
    """`file` None: in memory alone."""

    file: Path | None
    notes: list[Note] = field(default_factory=list)


def choose(environ: Mapping[str, str] = os.environ) -> Place:
    """The folder that the user names, else that of the state; in memory where neither is on a disk of this machine."""
    notes: list[Note] = []
    for folder in _folders(environ):
        kind = host.file_system(folder)
        if not isinstance(kind, Missing) and is_network(kind):
            notes.append(Note(code="history-on-network", params={"path": str(folder), "kind": kind}))
            continue
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(13, os.strerror(13))
        except OSError as error:
            notes.append(Note(code="history-no-folder", params={"path": str(folder), "detail": error.strerror or str(error)}))
            continue
        return Place(file=folder / f"{_host()}.sqlite", notes=notes)
    return Place(file=None, notes=[*notes, Note(code="history-in-memory")])


def _folders(environ: Mapping[str, str]) -> list[Path]:
    named = environ.get(VARIABLE, "")
    found = [Path(named)] if os.path.isabs(named) and "\0" not in named else []
    with contextlib.suppress(OSError):  # a user without a home
        found.append(state_folder(environ) / FOLDER)
    return found


def is_network(kind: str) -> bool:
    name = kind.lower().removeprefix("fuse.").removeprefix("fuseblk.")
    return name.startswith(NETWORKS)


def _host() -> str:
    """Homes are shared between hosts; each has a history of its own."""
    name = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in platform.node())
    return name[:60] or "host"


class Lock:
    """Held by the one who writes, until it closes or ends in whatever way."""

    def __init__(self, file: Path) -> None:
        self._descriptor = -1
        self.held = False
        with contextlib.suppress(OSError):
            self._descriptor = os.open(file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
            self.held = self._take()

    def _take(self) -> bool:
        try:
            if sys.platform == "win32":
                msvcrt.locking(self._descriptor, msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self.held = -1, False
