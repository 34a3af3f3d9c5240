"""Landlock: the kernel denies a trial every change of content, name and existence outside its own folders.

It takes no privileges, and holds other programs and libraries in C as well. The guard is on, too: it leads what Python
writes into the trial's folder, so that the script goes on, and holds what Landlock leaves open as far as Python does it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flatout.base.whole_number import whole_number
from flatout.launch import landlock_start
from flatout.launch.changed_files import State
from flatout.launch.overlay import multi_process_service
from flatout.launch.python_guard import Guard, last_lines
from flatout.launch.scratch import SHARED_MEMORY

LEAST_VERSION = 2  # before, a file could be emptied where it lay, and no file be moved to another folder
TRUNCATES, HOLDS_TCP, HOLDS_SIGNALS = 3, 4, 6  # versions from which on it does

# Device files that a training writes to.
DEVICES = re.compile(r"null|zero|full|random|urandom|tty|ptmx|pts|nvidia.*|dri|kfd|dxg|accel.*|infiniband|hl\d.*|davinci.*")
RENDEZVOUS_PORT = 29500  # torch.distributed's, over which the processes of a training find each other
PROBE = 'true > "$1"; true > "$2"'
LONGEST_PROBE_S = 20.0

# As the system says it, HDF5, and SQLite.
DENIED = re.compile(r"Permission denied|Errno 13\b|errno = 13\b|EACCES|readonly database|unable to open database")


class Landlock(Guard):
    """A `Protection`."""

    kind = "landlock"
    guarded = False  # whether the guard is known to be on, too: it is not asked of a shell script

    def __enter__(self) -> Landlock:
        self._version = _version()
        self.ready = False
        if self._version >= LEAST_VERSION:
            super().__enter__()
            self.guarded, self.ready = self.ready, self._holds()
            self.starts_all = True
        return self

    @property
    def gaps(self) -> tuple[str, ...]:
        """Codes of what is not held."""
        found = ["landlock-attributes", "landlock-shared-memory", "sockets", *(() if self.guarded else ("landlock-alone",))]
        if self._version < TRUNCATES:
            found.append("landlock-truncate")
        if not self.network:
            found.append("landlock-datagrams" if self._version >= HOLDS_TCP else "landlock-network")
        if self._version < HOLDS_SIGNALS:
            found.append("landlock-signals")
        if multi_process_service(self._user_environ):
            found.append("multi-process")
        return (*found, "daemons")

    def wrap(self, command: Sequence[str]) -> list[str]:
        return self._started_by(super().wrap(command), os.getpid())

    def limit_met(self, said: str) -> tuple[str, dict[str, str | int]] | None:
        """A library in C, or another program, that the kernel refused."""
        denied = [line for line in last_lines(said) if DENIED.search(line)]
        return super().limit_met(said) or (("held", {"said": denied[-1]}) if denied else None)

    def made(self) -> list[Path]:
        """The kernel denied them that: what is new is another's."""
        return []

    def _is_past(self, path: str, before: State, now: State | None) -> bool:
        """A trial's changes are the gaps alone; content, name and existence were changed by somebody else beside it."""
        if path.startswith(f"{SHARED_MEMORY}/"):
            return True
        if now is None or (now.inode, now.names) != (before.inode, before.names):
            return False
        if now.size != before.size:
            return self._version < TRUNCATES and now.size < before.size
        if (now.rights, now.owner, now.group) != (before.rights, before.owner, before.group):
            return True
        # What writes sets both times to the same; what sets the times alone, or attributes, does not.
        return now.written_ns != now.touched_ns

    def _started_by(self, command: Sequence[str], parent: int) -> list[str]:
        plan: dict[str, Any] = {
            "writable": [*map(str, self.free), *_devices(), *multi_process_service(self._user_environ)],
            "shared_memory": SHARED_MEMORY,
            "network": self.network,
            "ports": [_port()],
            "parent": parent,
        }
        return [sys.executable, "-I", "-S", landlock_start.__file__, json.dumps(plan), "--", *command]

    def _holds(self) -> bool:
        """Proved by writing: inside it must be possible, outside it must not."""
        name = f".flatout-probe-{secrets.token_hex(4)}"
        inside = self.above[0] / name
        outside = next((folder / name for folder in self.folders if os.access(folder, os.W_OK)), Path("/dev/null"))
        probe = self._started_by(["/bin/sh", "-c", PROBE, "sh", str(outside), str(inside)], 0)
        try:
            subprocess.run(probe, capture_output=True, check=False, timeout=LONGEST_PROBE_S)
        except (OSError, subprocess.TimeoutExpired):
            return False
        written = outside.is_file()
        if written:
            outside.unlink(missing_ok=True)
        return inside.exists() and not written


def _version() -> int:
    """Asked of a child: what it does to find out is no matter of ours."""
    if sys.platform != "linux":
        return 0
    line = [sys.executable, "-I", "-S", landlock_start.__file__, "version"]
    try:
        told = subprocess.run(line, capture_output=True, check=False, timeout=LONGEST_PROBE_S).stdout
        return int(told)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return 0


def _devices() -> list[str]:
    """Never all of `/dev`: disks are there, and what others share in memory."""
    return ["/proc/self", *(entry.path for entry in os.scandir("/dev") if DEVICES.fullmatch(entry.name))]


def _port() -> int:
    named = whole_number(os.environ.get("MASTER_PORT"))
    return named if named is not None and named < 65536 else RENDEZVOUS_PORT
