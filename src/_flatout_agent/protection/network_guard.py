"""Nothing of a trial leaves the machine by Python's sockets, unless it is allowed; then the addresses are told."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import sys
from typing import Any, Callable, Mapping

from _flatout_agent.protection import system_calls as system
from _flatout_agent.protection.audit_hook import AuditHook
from _flatout_agent.protection.own_ports import OwnPorts
from _flatout_agent.wire import HOSTS, NO_NETWORK, NO_SOCKETS, REFUSED_HOSTS

OWN_NAMES = ("", "localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback", "broadcasthost")
# The kernel itself answers there. All other families, such as those of virtual machines, lead to somebody else.
OF_THE_KERNEL = [getattr(socket, name) for name in ("AF_NETLINK", "AF_ALG") if hasattr(socket, name)]


class NetworkGuard:
    """Ports of this machine that somebody else listened on before the trial are foreign, too."""

    def __init__(self, folder: str, allowed: bool, is_free: Callable[[str], bool], apart: bool = False) -> None:
        """`is_free`: of the path of a socket. `apart`: no other program is in the trial's network."""
        self._allowed = allowed
        self._apart = apart
        self._names: set[str] = set()  # without a path, of the trial's own sockets
        self._is_free = is_free
        self._folder = folder
        self._told: set[str] = set()
        self._ports = None if allowed else OwnPorts(folder)
        self.events: dict[str, Callable[..., None]] = {
            "socket.bind": self.bound,
            "socket.connect": self._connect,
            "socket.sendto": self._connect,
            "socket.sendmsg": self._connect,
            "socket.getaddrinfo": self._look_up,
            "socket.gethostbyname": self._look_up,
            "socket.gethostbyaddr": self._look_back,
            "socket.getnameinfo": self._look_back,
        }

    def _connect(self, opened: Any, address: Any) -> None:
        if opened.family == getattr(socket, "AF_UNIX", None):
            self._connect_here(address)
        elif opened.family in (socket.AF_INET, socket.AF_INET6):
            if isinstance(address, tuple):  # what is none fails by itself
                host, port = str(address[0]), int(address[1])
                self._reach(f"{host}:{port}", self._ports is not None and _is_own(host) and self._ports.has(opened.type, port))
        elif opened.family not in OF_THE_KERNEL:
            self._reach(f"{opened.family!r}: {address}", False)

    def _reach(self, where: str, own: bool) -> None:
        if self._allowed:
            self._tell(HOSTS, where)
        elif not own:
            self._tell(REFUSED_HOSTS, where)
            raise OSError(errno.ENETUNREACH, NO_NETWORK, where)

    def _connect_here(self, address: Any) -> None:
        """Sockets of other programs: of containers, of the desktop, of agents that hold keys. They act outside of the trial."""
        name = os.fsdecode(address) if isinstance(address, (str, bytes)) else ""
        if not name or (self._is_ours(name) if name[0] == "\0" else self._is_free(os.path.realpath(name))):
            return
        name = name.replace("\0", "@")
        self._tell(REFUSED_HOSTS, name)
        raise ConnectionRefusedError(errno.ECONNREFUSED, NO_SOCKETS, name)

    def bound(self, opened: Any, address: Any) -> None:
        """A name without a path is known to all processes: it is the trial's where one of its own took it."""
        name = os.fsdecode(address) if opened.family == getattr(socket, "AF_UNIX", None) else ""
        if name[:1] == "\0" and not self._apart:
            system.append(os.path.join(self._folder, "names"), os.fsencode(name).hex().encode("ascii") + b" ")

    def _is_ours(self, name: str) -> bool:
        path = os.path.join(self._folder, "names")
        if not self._apart and name not in self._names and system.exists(path):
            with system.open_file(path, encoding="ascii") as file:
                self._names.update(os.fsdecode(bytes.fromhex(word)) for word in file.read().split())
        return self._apart or name in self._names

    def _look_up(self, host: Any, *_: Any) -> None:
        name = os.fsdecode(bytes(host) if isinstance(host, bytearray) else host) if host else ""
        if _is_number(name) or name.lower() in OWN_NAMES or name == socket.gethostname():
            return
        self._look_up_elsewhere(name)

    def _look_up_elsewhere(self, name: str) -> None:
        if self._allowed:
            self._tell(HOSTS, name)
            return
        self._tell(REFUSED_HOSTS, name)
        raise socket.gaierror(socket.EAI_AGAIN, f"{NO_NETWORK}: {name}")

    def _look_back(self, address: Any) -> None:
        """The name of a number is asked of a server, too."""
        host = str(address[0]) if isinstance(address, tuple) and address else address
        if not (isinstance(host, str) and _is_own(host)):
            self._look_up_elsewhere(str(host))

    def _tell(self, name: str, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            system.append(os.path.join(self._folder, name), os.fsencode(what) + b"\0")


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
        guard = NetworkGuard(wanted["folder"], bool(wanted["network"]), lambda path: True, bool(wanted.get("apart")))
        hook = AuditHook()
        hook.events = guard.events
        sys.addaudithook(hook.heard)
    except Exception as error:
        system.give_up(error)
