"""Nothing of a trial leaves the machine by Python's sockets, unless it is allowed; then the addresses are told."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import sys
import threading
from typing import Any, Callable, Mapping

from _flatout_agent.protection import system_calls as system
from _flatout_agent.wire import HOSTS, NO_NETWORK, REFUSED_HOSTS

OWN_NAMES = ("", "localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback", "broadcasthost")
LISTENING = "0A"  # the state in /proc/net/tcp


class NetworkGuard:
    """Ports of this machine that somebody else listened on before the trial are foreign, too."""

    def __init__(self, folder: str, allowed: bool, is_free: Callable[[str], bool]) -> None:
        self._allowed = allowed
        self._is_free = is_free
        self._folder = folder
        self._told: set[str] = set()
        self._foreign_ports = set() if allowed else self._ports_before(os.path.join(folder, "ports"))
        self.events: dict[str, Callable[..., None]] = {
            "socket.connect": self._connect,
            "socket.sendto": self._connect,
            "socket.sendmsg": self._connect,
            "socket.getaddrinfo": self._look_up,
            "socket.gethostbyname": self._look_up,
        }

    def _connect(self, opened: Any, address: Any) -> None:
        if opened.family == getattr(socket, "AF_UNIX", None):
            self._connect_here(address)
        elif opened.family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple):
            host, port = str(address[0]), int(address[1])
            if self._allowed:
                self._tell(HOSTS, f"{host}:{port}")
            elif not _is_own(host) or port in self._foreign_ports:
                self._tell(REFUSED_HOSTS, f"{host}:{port}")
                raise OSError(errno.ENETUNREACH, NO_NETWORK, f"{host}:{port}")

    def _connect_here(self, address: Any) -> None:
        """Sockets of other programs: of containers, of the desktop, of agents that hold keys. Without a path: of this trial."""
        name = os.fsdecode(address) if isinstance(address, (str, bytes)) else ""
        if self._allowed or name[:1] in ("", "\0") or self._is_free(os.path.realpath(name)):
            return
        self._tell(REFUSED_HOSTS, name)
        raise ConnectionRefusedError(errno.ECONNREFUSED, NO_NETWORK, name)

    def _look_up(self, host: Any, *_: Any) -> None:
        name = os.fsdecode(bytes(host) if isinstance(host, bytearray) else host) if host else ""
        if _is_number(name) or name.lower() in OWN_NAMES or name == socket.gethostname():
            return
        if self._allowed:
            self._tell(HOSTS, name)
            return
        self._tell(REFUSED_HOSTS, name)
        raise socket.gaierror(socket.EAI_AGAIN, f"{NO_NETWORK}: {name}")

    def _tell(self, name: str, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            system.append(os.path.join(self._folder, name), os.fsencode(what) + b"\0")

    def _ports_before(self, path: str) -> set[int]:
        """Those that were listened on when the first process of the trial began."""
        try:
            descriptor = system.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            with system.open_file(path, encoding="ascii") as file:
                return {int(port) for port in file.read().split()}
        ports = set(_listened_on())
        system.write(descriptor, " ".join(map(str, sorted(ports))).encode("ascii"))
        system.close(descriptor)
        return ports


def _listened_on() -> list[int]:
    ports = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with system.open_file(table, encoding="ascii") as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        ports += [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == LISTENING]
    return ports


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _is_own(host: str) -> bool:
    if _is_number(host):
        address = ipaddress.ip_address(host.partition("%")[0])
        return address.is_loopback or address.is_unspecified or host in _own_addresses()
    return host.lower() in OWN_NAMES or host == socket.gethostname()


def _own_addresses() -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return set()


def put_on(wanted: Mapping[str, Any]) -> None:
    """Where files are held otherwise; `wanted` is the job's `network_guard`. A trial that is not held must not run at all."""
    try:
        guard = NetworkGuard(wanted["folder"], bool(wanted["network"]), lambda path: True)
        now = threading.local()

        def heard(event: str, args: Any) -> None:
            judge = guard.events.get(event)
            if judge is None or getattr(now, "judging", False):
                return
            now.judging = True  # what is done to judge is not judged
            try:
                judge(*args)
            finally:
                now.judging = False

        sys.addaudithook(heard)
    except Exception as error:
        system.give_up(error)
