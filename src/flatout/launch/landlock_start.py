"""Starts a command that can change files in a few places only: Landlock, which needs no privileges.

A program of its own, of the standard library alone: `python -I -S landlock_start.py PLAN -- COMMAND`, PLAN in JSON:
`writable` folders and files, `shared_memory`: its folder, `network`: whether TCP may leave, `ports` that may be connected
to in any case, `parent`: who starts it, and must live. What is read or executed is not restricted; whatever the command
starts is held with it. `landlock_start.py version` tells the version of this kernel's Landlock.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import sys
from typing import Any, NoReturn

FAILED = 97  # exit status: the command was not started

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # on every architecture
VERSION_ONLY = 1
RULE_PATH, RULE_PORT = 1, 2
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38

WRITE_FILE, REMOVE_DIR, REMOVE_FILE, MAKE_REG, TRUNCATE = 1 << 1, 1 << 4, 1 << 5, 1 << 8, 1 << 14
MAKE_CHAR, MAKE_BLOCK = 1 << 6, 1 << 11  # device files: a disk behind one could be written to
CHANGES = sum(1 << bit for bit in range(4, 13)) | WRITE_FILE  # write, remove, and make of every kind
REFER = 1 << 13  # to another folder
ON_FILES = WRITE_FILE | TRUNCATE
CONNECT_TCP = 1 << 1
SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1, 2

DROPPED = (2, 16, 17, 19, 21, 22, 25, 27, 39)  # of root's rights, as under an overlay (`inside/start.py`)
RAW_NETWORK = (12, 13)  # NET_ADMIN, NET_RAW: packets past what Landlock knows of

libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Of Landlock in this kernel; 0 without it."""
    return max(0, int(libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION_ONLY))))


def rights(abi: int, network: bool) -> tuple[int, int, int]:
    """What is denied: changes of files, of the network, and beyond the processes of the trial."""
    files = CHANGES | (REFER if abi >= 2 else 0) | (TRUNCATE if abi >= 3 else 0)
    connections = CONNECT_TCP if abi >= 4 and not network else 0
    return files, connections, SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS if abi >= 6 else 0


def hold(plan: dict[str, Any]) -> None:
    abi = version()
    files, connections, scopes = rights(abi, plan["network"])
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    attributes = struct.pack("QQQ", files, connections, scopes)[:size]
    rules = _checked(libc.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0)), "ruleset")
    for path in plan["writable"]:
        _allow(rules, path, files & ~(MAKE_CHAR | MAKE_BLOCK))
    # Workers and semaphores make files here, and write to what others of them made.
    _allow(rules, plan["shared_memory"], files & (WRITE_FILE | TRUNCATE | MAKE_REG | REMOVE_FILE))
    for port in plan["ports"] if connections else ():
        _rule(rules, RULE_PORT, struct.pack("QQ", CONNECT_TCP, port))
    if os.geteuid() == 0:
        for number in (*DROPPED, *(() if plan["network"] else RAW_NETWORK)):
            libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)  # counts from the command's start on
    _checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "privileges")
    _checked(libc.syscall(RESTRICT_SELF, rules, ctypes.c_uint32(0)), "restriction")
    os.close(rules)


def _allow(rules: int, path: str, allowed: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not on this machine
        return
    try:
        on_file = allowed if os.path.isdir(path) else allowed & ON_FILES
        _rule(rules, RULE_PATH, struct.pack("=Qi", on_file, descriptor))
    finally:
        os.close(descriptor)


def _rule(rules: int, kind: int, attributes: bytes) -> None:
    _checked(libc.syscall(ADD_RULE, rules, kind, attributes, ctypes.c_uint32(0)), "rule")


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)
    return result


def main(plan: dict[str, Any], command: list[str]) -> NoReturn:
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if plan["parent"] and os.getppid() != plan["parent"]:
            os._exit(FAILED)
        hold(plan)
        for name in ("SIGPIPE", "SIGXFSZ"):  # which Python ignores
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"flatout: the trial was not started: {error}\n".encode("utf-8", "surrogateescape"))
    os._exit(FAILED)


if __name__ == "__main__":
    if sys.argv[1] == "version":
        sys.stdout.write(f"{version()}\n")
    else:
        main(json.loads(sys.argv[1]), sys.argv[3:])
