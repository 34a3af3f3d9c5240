"""Starts a command in namespaces of its own, where an overlay lies over everything that can be written.

A program of its own, of the standard library alone: its words are a plan, which is a JSON file that `overlay.py` writes, and
the command. Three processes: this one waits, a second one is process 1 of the new process namespace, the third becomes the
command. Each dies with the one before it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
from typing import Any, NoReturn

from flatout.launch.inside.kernel import MS_PRIVATE, MS_REC, NAMESPACES, checked, enter_root, libc, mount
from flatout.launch.inside.view import View

FAILED_WORDS = "flatout: the trial was not started:"
FAILED = 97  # exit status: the command was not started
PR_SET_PDEATHSIG, PR_CAPBSET_DROP = 1, 24
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1

# What root could use to reach around the overlay: DAC_READ_SEARCH (opens files by a handle, past every mount; what root may
# read otherwise stays as it is), SYS_MODULE, SYS_RAWIO, SYS_PTRACE (/proc/1/root), SYS_ADMIN, SYS_BOOT, SYS_TIME, MKNOD, BPF.
DROPPED = (2, 16, 17, 19, 21, 22, 25, 27, 39)


def start(plan: dict[str, Any], command: list[str]) -> NoReturn:
    here = os.getcwd()
    die_with_parent(plan["parent"])
    try:
        enter_namespaces(plan["namespaces"])
        if "net" in plan["namespaces"]:
            bring_up_loopback()
        if "pid" not in plan["namespaces"]:
            show(plan, here)
            become(command)
        inherited, told = os.pipe()
    except OSError as error:
        fail(error)
    first = os.fork()
    if first == 0:
        os.close(inherited)
        as_first_process(plan, here, command, told)
    os.close(told)
    _, ended = os.waitpid(first, 0)
    word = os.read(inherited, 16)
    end_like(int(word) if word else ended)


def enter_namespaces(names: list[str]) -> None:
    user, group = os.geteuid(), os.getegid()
    flags = sum(NAMESPACES[name] for name in names)
    checked(libc.unshare(flags), "unshare")
    if "user" in names:
        # The same user as outside: a script may look who it is.
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    mount("", "/", "", MS_REC | MS_PRIVATE)


def show(plan: dict[str, Any], here: str) -> None:
    """Lays the view out and goes inside."""
    view = View(plan)
    view.lay_out()
    if plan["report"]:
        with open(plan["report"], "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump(view.report(), file)
    enter_root(view.root)
    os.chdir(here)


def as_first_process(plan: dict[str, Any], here: str, command: list[str], told: int) -> NoReturn:
    """Its end is the end of all that was started in the namespace."""
    die_with_parent(0)
    try:
        show(plan, here)
        child = os.fork()
    except OSError as error:
        fail(error)
    if child == 0:
        become(command)
    while True:
        pid, ended = os.wait()
        if pid == child:
            os.write(told, str(ended).encode("ascii"))
            os._exit(0)


def become(command: list[str]) -> NoReturn:
    # Not before the namespaces are there; what a command gets at its start is what it may have.
    for number in DROPPED if os.geteuid() == 0 else ():
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    die_with_parent(0)
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores these
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        fail(error)


def die_with_parent(parent: int) -> None:
    """`parent`: who that was when we were asked for; 0 where nobody could have gone since."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent and os.getppid() != parent:
        os._exit(FAILED)


def bring_up_loopback() -> None:
    import fcntl
    import socket
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as speaker:
        told = fcntl.ioctl(speaker, SIOCGIFFLAGS, struct.pack("16sH14x", b"lo", 0))
        flags = struct.unpack("16sH14x", told)[1]
        fcntl.ioctl(speaker, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def end_like(ended: int) -> NoReturn:
    if os.WIFSIGNALED(ended):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(ended)
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(ended))


def fail(error: OSError) -> NoReturn:
    name = errno.errorcode.get(error.errno or 0, "?")
    os.write(2, f"{FAILED_WORDS} {name} {error.filename}\n".encode("utf-8", "surrogateescape"))
    os._exit(FAILED)


def main(words: list[str]) -> NoReturn:
    """`words`: the plan's path, and the command."""
    with open(words[0], encoding="ascii") as file:
        start(json.load(file), words[1:])
