"""Windows: a trial must not destroy what was there before it (elsewhere `protection` leads what it writes aside).

Python's own calls are seen by an audit hook and refused, `torch.save` writes beside what is there. Libraries that open files
by themselves are not seen: the front looks at the files after each child. What did not exist before is the trial's own.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import tempfile
from typing import Any

from _flatout_agent.protection import system_calls
from _flatout_agent.protection.audit_hook import AuditHook
from _flatout_agent.wire import GAVE_UP, REFUSED, REFUSED_WORDS

WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND
DESTROYERS = frozenset(["rm", "mv", "cp", "dd", "rmdir", "unlink", "shred", "truncate", "rsync", "tee"])
# Of the shell of Windows: ordinary words, which count where a command begins.
OF_WINDOWS = frozenset(["del", "erase", "rd", "ren", "rename", "move", "copy", "xcopy", "robocopy", "attrib", "icacls"])
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")


class Veto(AuditHook):
    """`folder` is the front's, shared by all children of a search; a process that cannot write there must not go on."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._created_path = os.path.join(folder, "created.txt")
        self._refused_path = os.path.join(folder, REFUSED)
        self._shadows = os.path.join(folder, "saved")
        os.makedirs(self._shadows, exist_ok=True)
        kept = [os.environ[name] for name in CACHES if os.environ.get(name)]
        free = ("/dev", "/proc", tempfile.gettempdir(), "~/.cache", *kept, folder)
        self._free = tuple(os.path.realpath(os.path.expanduser(place)) + os.sep for place in free)
        self._created: set[str] = set()
        self._read = 0  # bytes of what all processes created
        self.events = {
            "open": self._open,
            "os.remove": self._gone,
            "os.rmdir": self._gone,
            "os.rename": self._rename,
            "os.truncate": self._truncate,
            "os.mkdir": self._mkdir,
            "os.chmod": self._changed,
            "os.utime": self._changed,
            "os.link": self._doubled,
            "os.symlink": self._linked,
            "sqlite3.connect": self._database,
            "os.system": self._system,
            "subprocess.Popen": self._started,
            "os.posix_spawn": self._spawned,
        }

    # -- what is asked for -----------------------------------------------------------------------------------------

    def _open(self, path: Any, mode: Any, flags: Any) -> None:
        if isinstance(path, int) or not isinstance(flags, int) or not flags & WRITING:
            return
        name = os.path.realpath(self._name(path))  # what a link leads to is written to
        if os.path.lexists(name):
            self._keep(name)
        elif flags & os.O_CREAT:
            self._mine(name)

    def _changed(self, path: Any, *_: Any) -> None:
        if not isinstance(path, int):
            self._keep(os.path.realpath(self._name(path)))

    def _database(self, path: Any) -> None:
        """What it opens is opened for writing; a name of its own kind (`file:`, `:memory:`) is left to it."""
        if isinstance(path, (str, bytes, os.PathLike)) and not os.fsdecode(path).startswith(("file:", ":")) and path:
            self._open(path, None, os.O_RDWR | os.O_CREAT)

    def _gone(self, path: Any, dir_fd: Any = -1) -> None:
        self._keep(self._name(path, dir_fd))

    def _rename(self, source: Any, target: Any, source_fd: Any = -1, target_fd: Any = -1) -> None:
        self._keep(self._name(source, source_fd))
        name = self._name(target, target_fd)
        if os.path.lexists(name):
            self._keep(name)
        else:
            self._mine(name)

    def _truncate(self, path: Any, length: Any) -> None:
        if not isinstance(path, int):
            self._keep(self._name(path))

    def _mkdir(self, path: Any, mode: Any = 0, dir_fd: Any = -1) -> None:
        name = self._name(path, dir_fd)
        if not os.path.lexists(name):
            self._mine(name)

    def _linked(self, source: Any, target: Any, *descriptors: Any) -> None:
        name = self._name(target, descriptors[-1] if descriptors else -1)
        if not os.path.lexists(name):
            self._mine(name)

    def _doubled(self, source: Any, target: Any, source_fd: Any = -1, target_fd: Any = -1) -> None:
        self._keep(self._name(source, source_fd))  # under either name the same file could be written to
        self._linked(source, target, target_fd)

    def _system(self, command: Any) -> None:
        self._words(os.fsdecode(command).replace(";", " ").replace("&", " ").replace("|", " ").split())

    def _started(self, executable: Any, args: Any, cwd: Any, env: Any) -> None:
        words = [args] if isinstance(args, (str, bytes)) else list(args or ())
        self._words([word for one in words for word in os.fsdecode(one).split()])

    def _spawned(self, executable: Any, args: Any, env: Any) -> None:
        self._started(executable, args, None, env)

    # -- the judgement ---------------------------------------------------------------------------------------------

    def _words(self, words: list[str]) -> None:
        """Other programs are not watched: those that are there to move and delete are not started."""
        names = [_program(word) for word in words]
        begins = [place for place, name in enumerate(names) if place == 0 or names[place - 1] in ("/c", "/k")]
        if any(name in DESTROYERS or name.startswith(">") for name in names) or any(
            names[place] in OF_WINDOWS for place in begins
        ):
            self._refuse(" ".join(words)[:200])

    def _keep(self, name: str) -> None:
        if name.startswith(self._free) or not os.path.lexists(name) or self._is_mine(name):
            return
        if os.path.isfile(name) or os.path.isdir(name) or os.path.islink(name):  # not a pipe, a terminal, a device
            self._refuse(name)

    def _refuse(self, what: str) -> None:
        _append(self._refused_path, what)
        raise PermissionError(errno.EPERM, REFUSED_WORDS, what)

    def _mine(self, name: str) -> None:
        if not name.startswith(self._free) and name not in self._created:
            self._created.add(name)
            _append(self._created_path, name)

    def _is_mine(self, name: str) -> bool:
        """Created by a process of this search: by this one, or by another one since we looked."""
        if name not in self._created and os.path.exists(self._created_path):
            with open(self._created_path, encoding="utf-8", errors="surrogateescape") as file:
                file.seek(self._read)
                self._created.update(file.read().split("\0"))
                self._read = file.tell()
        return name in self._created

    def _name(self, path: Any, dir_fd: Any = -1) -> str:
        name = os.fsdecode(path)
        if isinstance(dir_fd, int) and dir_fd >= 0 and not os.path.isabs(name):
            name = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), name)
        # Of a link the folder counts, not what it points to: that is what would be removed.
        folder, last = os.path.split(os.path.abspath(name))
        return os.path.join(os.path.realpath(folder), last)

    # -- torch -----------------------------------------------------------------------------------------------------

    def watch(self, torch: Any) -> None:
        """torch opens files by itself: a checkpoint goes beside the one that is there, and is read from there again."""
        try:
            for name, through in (("save", self._saved), ("load", self._loaded)):
                wrapped = through(getattr(torch, name))
                setattr(torch, name, wrapped)
                setattr(torch.serialization, name, wrapped)
                setattr(torch.jit, name, through(getattr(torch.jit, name)))
        except Exception:
            os._exit(GAVE_UP)

    def _saved(self, original: Any) -> Any:
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            return original(obj, self.place_for(f, writing=True), *args, **kwargs)

        return save

    def _loaded(self, original: Any) -> Any:
        def load(f: Any, *args: Any, **kwargs: Any) -> Any:
            return original(self.place_for(f, writing=False), *args, **kwargs)

        return load

    def place_for(self, file: Any, writing: bool) -> Any:
        if not isinstance(file, (str, os.PathLike)):
            return file
        name = self._name(file)
        shadow = os.path.join(self._shadows, hashlib.sha256(os.fsencode(name)).hexdigest())
        if not writing:
            return shadow if os.path.exists(shadow) else file
        if not os.path.lexists(name):
            self._mine(name)
            return file
        return file if self._is_mine(name) or name.startswith(self._free) else shadow


def _program(word: str) -> str:
    """As it is looked for: `C:\\bin\\RM.EXE` is rm."""
    name = word.strip('"').lower()
    if name not in ("/c", "/k") and not name.startswith(">"):
        name = os.path.basename(name)
    return name[: -len(".exe")] if name.endswith(".exe") else name


def _append(path: str, name: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, os.fsencode(name) + b"\0")
    finally:
        os.close(descriptor)


def put_on(folder: str) -> Veto:
    """Fails closed, as nothing else here does: a trial that would not be held back must not run at all."""
    try:
        veto = Veto(folder)
        sys.addaudithook(veto.heard)
        return veto
    except Exception as error:
        system_calls.give_up(error)
