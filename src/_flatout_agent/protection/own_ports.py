"""Which ports of this machine are the trial's own: others belong to servers that must not hear of it.

Linux tells what was listened on before the trial; what came since counts as the trial's. Elsewhere only ports that the trial's
Python has bound are its own.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from _flatout_agent.protection import system_calls as system

LISTENING = "0A"  # the state in /proc/net/tcp; a datagram's socket hears from when it has a port
TABLES = {"tcp": ("/proc/net/tcp", "/proc/net/tcp6"), "udp": ("/proc/net/udp", "/proc/net/udp6")}
KINDS: dict[int, str] = {socket.SOCK_STREAM: "tcp", socket.SOCK_DGRAM: "udp"}
UNKNOWN = "?"


class OwnPorts:
    """The processes of a trial share what they know by files in `folder`; the first one looks."""

    def __init__(self, folder: str) -> None:
        self._bound_path = os.path.join(folder, "bound")
        self._foreign = self._before(os.path.join(folder, "ports"))
        self._bound: set[str] = set()
        if UNKNOWN in self._foreign:
            self._note_what_is_bound()

    def has(self, kind: int, port: int) -> bool:
        name = f"{KINDS.get(kind)}:{port}"
        if kind not in KINDS:  # packets by hand
            return False
        if UNKNOWN not in self._foreign:
            return name not in self._foreign
        if name not in self._bound and system.exists(self._bound_path):
            with system.open_file(self._bound_path, encoding="ascii") as file:
                self._bound.update(file.read().split())
        return name in self._bound

    def _before(self, path: str) -> set[str]:
        """Those that were listened on when the first process of the trial began."""
        try:
            descriptor = system.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            with system.open_file(path, encoding="ascii") as file:
                return set(file.read().split())
        ports = listened_on()
        system.write(descriptor, " ".join(sorted(ports)).encode("ascii"))
        system.close(descriptor)
        return ports

    def _note_what_is_bound(self) -> None:
        """Which port the system gave is known once it is bound."""
        original = socket.socket.bind

        def bind(opened: socket.socket, address: Any) -> None:
            original(opened, address)
            if opened.family in (socket.AF_INET, socket.AF_INET6):
                line = f"{KINDS.get(opened.type)}:{opened.getsockname()[1]} "
                system.append(self._bound_path, line.encode("ascii"))

        socket.socket.bind = bind  # type: ignore[method-assign, assignment]


def listened_on() -> set[str]:
    found = set()
    for kind, tables in TABLES.items():
        for table in tables:
            try:
                with system.open_file(table, encoding="ascii") as file:
                    rows = [line.split() for line in file][1:]
            except OSError:
                if not table.endswith("6"):  # a machine without IPv6 has no such table
                    return {UNKNOWN}
                continue
            found |= {f"{kind}:{int(row[1].rpartition(':')[2], 16)}" for row in rows if kind == "udp" or row[3] == LISTENING}
    return found
