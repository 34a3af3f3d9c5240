"""What a trial must not change is refused: the net below the redirected calls, for whatever comes past them.

An audit hook hears what Python calls. Libraries that open files by themselves and other programs are not heard; those
that are there to move or delete files are not started. Unlike all else of the agent it fails closed.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
import sys
from typing import Any, Callable, Mapping
from urllib.parse import parse_qs

from _flatout_agent.protection import system_calls as system
from _flatout_agent.protection.audit_hook import AuditHook
from _flatout_agent.protection.network_guard import NetworkGuard
from _flatout_agent.protection.shadow_files import ShadowFiles
from _flatout_agent.protection.shared_blocks import SharedBlocks
from _flatout_agent.wire import REFUSED, REFUSED_WORDS

WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND | os.O_CREAT
DESTROYERS = frozenset(
    ["rm", "mv", "cp", "dd", "rmdir", "unlink", "shred", "truncate", "rsync", "tee", "install", "ln", "chmod", "chown", "touch"]
)
SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "fish"])
STARTERS = SHELLS | {"env", "nohup", "nice", "timeout", "sudo", "xargs", "find", "stdbuf", "setsid", "busybox"}
INTO_FILE = re.compile(r">(?![>\s]*(?:&|/dev/(?:null|std)))")
SHARED_MEMORY = re.compile(r"/dev/+shm\b")
ATTACH, OK, DENIED = 24, 0, 1  # as SQLite numbers what is asked, and the answers


class WriteGuard(AuditHook):
    def __init__(self, files: ShadowFiles, network: NetworkGuard, told: str, starts_all: bool, began_ns: int) -> None:
        """`told`: the file for what was refused. `starts_all`: other programs are held by the system itself."""
        super().__init__()
        self.blocks = SharedBlocks(began_ns, self)
        self._files = files
        self._network = network
        self._told = told
        self._starts_all = starts_all
        self.events = {
            "open": self._open,
            "os.remove": self._gone,
            "os.rmdir": self._gone,
            "os.rename": self._renamed,
            "os.truncate": self._changed,
            "os.chmod": self._changed,
            "os.chown": self._owned,
            "os.utime": self._timed,
            "os.setxattr": self._attributed,
            "os.removexattr": self._attributed,
            "os.chflags": self._changed,
            "os.mkdir": self._made,
            "os.link": self._doubled,
            "os.symlink": self._linked,
            "os.chdir": self._moved,
            "sqlite3.connect": self._database,
            **network.events,
            "socket.bind": self._bound,
            "os.system": self._system,
            "subprocess.Popen": self._started,
            "os.posix_spawn": self._started,
            "os.exec": self._started,
        }

    def opening(self, name: Any, call: Callable[[], Any]) -> Any:
        """`call` opens `name`, and something else is opened in its place."""
        before = getattr(self._now, "opening", None)
        self._now.opening = name
        try:
            return call()
        finally:
            self._now.opening = before

    def refuse(self, what: str) -> None:
        system.append(self._told, os.fsencode(what) + b"\0")
        raise PermissionError(errno.EPERM, REFUSED_WORDS, what)

    # -- what is asked for -----------------------------------------------------------------------------------------

    def _open(self, name: Any, mode: Any, flags: Any) -> None:
        if not isinstance(flags, int) or not flags & WRITING or isinstance(name, int):
            return
        if name is not getattr(self._now, "opening", None):
            path = self._files.real_path_of(name)
            if not _is_device(path):
                self._keep(path)

    def _gone(self, name: Any, dir_fd: Any = -1) -> None:
        self._keep(self._files.real_path_of(name, dir_fd, follow=False))

    def _renamed(self, source: Any, target: Any, source_fd: Any = -1, target_fd: Any = -1) -> None:
        self._gone(source, source_fd)
        self._gone(target, target_fd)

    def _changed(self, name: Any, value: Any = None, dir_fd: Any = -1) -> None:
        """By a descriptor: also of a file that was opened for reading alone."""
        if isinstance(name, int):
            name = system.path_behind(name)
            if not os.path.isabs(name) or self.blocks.is_own(name):  # a pipe, a socket
                return
        self._keep(self._files.real_path_of(name, dir_fd))

    def _owned(self, name: Any, user: Any, group: Any, dir_fd: Any = -1) -> None:
        self._changed(name, None, dir_fd)

    def _timed(self, name: Any, times: Any, ns: Any, dir_fd: Any = -1) -> None:
        self._changed(name, None, dir_fd)

    def _attributed(self, name: Any, *_: Any) -> None:
        self._changed(name)

    def _made(self, name: Any, mode: Any = 0, dir_fd: Any = -1) -> None:
        self._gone(name, dir_fd)

    def _linked(self, source: Any, target: Any, *descriptors: Any) -> None:
        self._gone(target, descriptors[-1] if descriptors else -1)

    def _doubled(self, source: Any, target: Any, source_fd: Any = -1, target_fd: Any = -1) -> None:
        self._renamed(source, target, source_fd, target_fd)  # under either name the same file could be written to

    def _moved(self, name: Any) -> None:
        self._files.working_folder_changes()

    def _database(self, name: Any) -> None:
        text = os.fsdecode(name) if isinstance(name, (str, bytes, os.PathLike)) else ""
        if text.startswith("file:"):
            text, _, query = text[5:].partition("?")
            told = parse_qs(query)
            if told.get("mode") in (["ro"], ["memory"]) or "immutable" in told:
                return
            text = text if not text.startswith("//") else "/" + text[2:].partition("/")[2]
        if text not in ("", ":memory:"):
            self._keep(self._files.real_path_of(text))

    def attaches(self, asked: int, name: Any, *_: Any) -> int:
        """Of a database that opens another one, which nothing can lead elsewhere; without a name: told as a parameter.

        Landlock does hold them, except in shared memory.
        """
        if asked != ATTACH or name == "" or (self._starts_all and (name is None or not SHARED_MEMORY.search(name))):
            return OK
        try:
            self._database(name) if name is not None else self.refuse("ATTACH ?")
        except PermissionError:
            return DENIED
        return OK

    def _bound(self, opened: Any, address: Any) -> None:
        """A socket with a name in a folder is a new file."""
        named = opened.family == getattr(socket, "AF_UNIX", None) and isinstance(address, (str, bytes)) and len(address)
        if named and address[:1] not in ("\0", b"\0"):
            self._keep(self._files.real_path_of(address))
        self._network.bound(opened, address)

    def _system(self, command: Any) -> None:
        self._destroys(os.fsdecode(command), in_shell=True)

    def _started(self, executable: Any, args: Any, *_: Any) -> None:
        words = [args] if isinstance(args, (str, bytes, os.PathLike)) else list(args or ())
        if words:
            program = os.path.basename(os.fsdecode(words[0]))
            line = " ".join(os.fsdecode(word) for word in words)
            if program in DESTROYERS or program in STARTERS:
                self._destroys(line, in_shell=program in SHELLS)

    # -- the judgement ---------------------------------------------------------------------------------------------

    def _destroys(self, line: str, in_shell: bool) -> None:
        """Other programs are not held: those that are there to move and delete are not started.

        Landlock does hold them, except in shared memory, which workers need.
        """
        named = any(os.path.basename(word) in DESTROYERS for word in re.split(r"[\s;&|()'\"`]+", line))
        if (named or (in_shell and INTO_FILE.search(line))) and (not self._starts_all or SHARED_MEMORY.search(line)):
            self.refuse(line[:200])

    def _keep(self, path: str) -> None:
        if not self._files.is_free(path) and not self._files.is_ours(path):
            self.refuse(path)


def _is_device(path: str) -> bool:
    """A terminal, a GPU, `/dev/null`."""
    try:
        return stat.S_ISCHR(system.lstat(path).st_mode)
    except OSError:
        return False


def _all_but_reading(heard: Callable[[str, Any], None]) -> Callable[[str, Any], None]:
    """A plain function, which Python calls at half the price of a method; most that it hears of is opened to be read."""

    def heard_of(event: str, args: Any) -> None:
        if event != "open" or type(args[2]) is not int or args[2] & WRITING:
            heard(event, args)

    return heard_of


def put_on(wanted: Mapping[str, Any]) -> WriteGuard:
    """`wanted`: the job's `write_guard`. A trial that would not be held back must not run at all."""
    try:
        from _flatout_agent.protection import file_arguments, redirected_calls

        folder = wanted["folder"]
        files = ShadowFiles(folder, [folder, *wanted["free"]])
        network = NetworkGuard(folder, bool(wanted.get("network")), files.is_free)
        guard = WriteGuard(files, network, os.path.join(folder, REFUSED), bool(wanted.get("starts_all")), wanted["began_ns"])
        sys.dont_write_bytecode = True
        redirected_calls.put_on(files, guard)
        file_arguments.put_on(files, guard)
        guard.blocks.put_on()
        sys.addaudithook(_all_but_reading(guard.heard))
        return guard
    except Exception as error:
        system.give_up(error)
