"""A copy-on-write view of the file system for Python's own calls.

What a trial writes lands in `root`, under the path that it has for the script: `root` + `/home/me/log.txt`. What it
removed, and all that was below, is noted as gone. Every process of the trial sees the same: both are told in a shared log.

A `name` is what a script passes. A `path` is absolute and without links, as the view has them. A `place` is where a path
really lies: at itself, or below `root`.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from typing import Any, Iterable, Optional

from _flatout_agent.protection import system_calls as system
from _flatout_agent.protection.shared_log import SharedLog
from _flatout_agent.wire import FILE_GONE, FILE_MADE

MOST_LINKS = 40
MOST_KNOWN = 100_000  # folders
BLOCK = 1 << 20


class NotCopiedError(Exception):
    """Neither a plain file nor a folder, or larger than there is room for."""


class ShadowFiles:
    def __init__(self, folder: str, free: Iterable[str]) -> None:
        """`free`: folders that a trial writes to as they are."""
        self.root = os.path.join(folder, "files")
        system.make_folders(self.root)
        self._log = SharedLog(folder)
        self._free = tuple(place.rstrip(os.sep) + os.sep for place in free)
        self._made: set[str] = set()
        self._gone: set[str] = set()
        self._changed_folders: set[str] = set()  # in which something was made or is gone
        self._plain_folders: dict[str, bool] = {}  # folder as it was named -> whether it is as it was
        self._resolved_folders: dict[str, str] = {}
        self._lock = threading.Lock()
        self._working_folder: Optional[str] = None
        self._works_above = False  # the working folder is one that the trial made

    # -- paths -----------------------------------------------------------------------------------------------------

    def is_untouched(self, name: Any) -> bool:
        """A quick yes for most of what is read: nothing in its folder was changed by the trial."""
        if self._log.is_new():
            self._catch_up()
        if not self._changed_folders:
            return type(name) is not int
        if type(name) is not str:
            return False
        folder = name[: name.rfind("/") + 1]
        if folder[:1] != "/":
            folder = f"{self.working_folder()}/{folder}"
            if self._works_above:
                return False
        known = self._plain_folders.get(folder)
        return self._is_plain(folder) if known is None else known

    def path_of(self, name: Any, dir_fd: Any = None, follow: bool = True) -> str:
        """`follow`: of a link what it leads to, not itself."""
        text = os.fsdecode(name)
        if not text:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        if text[:1] != "/":
            text = f"{self._folder_of(dir_fd)}/{text}"
        if self._log.is_new():
            self._catch_up()
        if text.startswith(self.root + "/"):
            text = text[len(self.root) :]
        folder, last = os.path.split(text.rstrip("/"))
        if last in ("", ".", ".."):
            return self._resolved(text, seen=True)
        path = os.path.join(self._resolved_folder(folder), last)
        return path if not follow or self._link_at(path, seen=True) is None else self._resolved(text, seen=True)

    def real_path_of(self, name: Any, dir_fd: Any = None, follow: bool = True) -> str:
        """As the system will find it, whatever the view shows."""
        text = os.fsdecode(name)
        if text[:1] != "/":
            base = system.path_behind(dir_fd) if isinstance(dir_fd, int) and dir_fd >= 0 else system.getcwd()
            text = f"{base}/{text}"
        folder, last = os.path.split(text.rstrip("/"))
        if follow or last in ("", ".", ".."):
            return self._resolved(text, seen=False)
        return os.path.join(self._resolved(folder, seen=False), last)

    def is_free(self, path: str) -> bool:
        return path.startswith(self._free) or (path + "/").startswith(self._free)

    def is_ours(self, path: str) -> bool:
        return path.startswith(self.root + "/")

    def working_folder(self) -> str:
        folder = self._working_folder
        if folder is None:
            folder = system.getcwd()
            self._works_above = self.is_ours(folder)
            if self._works_above:
                folder = folder[len(self.root) :]
            self._working_folder = folder
        return folder

    def works_above(self) -> bool:
        """Whether a relative name would be looked for elsewhere than at its path."""
        self.working_folder()
        return self._works_above

    def working_folder_changes(self) -> None:
        self._working_folder = None

    # -- what is there ---------------------------------------------------------------------------------------------

    def place(self, path: str) -> str:
        """Where it lies; a place without anything where the view has none."""
        if not self._changed_folders or self.is_free(path):
            return path
        above = self.root + path
        try:
            status = system.lstat(above)
        except OSError:
            return above if self.is_gone(path) else path
        # A folder that was made for what lies in it alone.
        merged = stat.S_ISDIR(status.st_mode) and path not in self._made and not self.is_gone(path)
        return path if merged and system.exists(path) else above

    def is_gone(self, path: str) -> bool:
        """What was there before: removed by the trial, or in a folder that was."""
        while self._gone and path not in ("", "/"):
            if path in self._gone:
                return True
            path = path[: path.rfind("/")]
        return False

    def status(self, path: str) -> Optional[os.stat_result]:
        return _status(self.place(path))

    def names_in(self, path: str) -> Optional[list[str]]:
        """Of a folder in which something was changed; None for any other."""
        if self.is_free(path) or not (path in self._changed_folders or self._is_new(path)):
            return None
        names = set()
        try:
            names.update(system.listdir(self.root + path))
        except (FileNotFoundError, NotADirectoryError):
            pass
        if not self.is_gone(path):
            try:
                below = system.listdir(path)
            except (FileNotFoundError, NotADirectoryError):
                below = []
            names.update(name for name in below if os.path.join(path, name) not in self._gone)
        return list(names)

    # -- changes ---------------------------------------------------------------------------------------------------

    def for_writing(self, path: str, keep: bool = True) -> str:
        """The place to write it to: a copy of what is there (`keep`), an empty file of its kind, or a free name."""
        if self.is_free(path):
            return path
        status = None if self.is_gone(path) else _status(path)
        if status is not None and stat.S_ISCHR(status.st_mode):
            return path
        above = self.parent_made(path)
        if system.exists(above):
            return above
        if status is not None:
            if stat.S_ISDIR(status.st_mode):
                system.make_folders(above)
            elif stat.S_ISLNK(status.st_mode):
                system.symlink(system.readlink(path), above)
            else:
                self._copy(path, above, status, keep)
        self.made(path)
        return above

    def whole_for_writing(self, path: str) -> str:
        """A file, or a folder with all that is in it."""
        status = self.status(path)
        if status is not None and stat.S_ISDIR(status.st_mode) and not self.is_free(path):
            names = self.names_in(path)
            for name in system.listdir(self.place(path)) if names is None else names:
                self.whole_for_writing(os.path.join(path, name))
        return self.for_writing(path)

    def made(self, path: str, other: bool = False) -> None:
        """Told once there is something at its place above; `other`: of another kind than before, maybe."""
        if not self.is_free(path) and (other or path not in self._made):
            self._log.tell(FILE_MADE, path)
            self._catch_up()

    def removed(self, path: str) -> None:
        """What was there before is not to be seen again."""
        if not self.is_free(path) and system.exists(path) and not self.is_gone(path):
            self._log.tell(FILE_GONE, path)
            self._catch_up()

    # ----------------------------------------------------------------------------------------------------------------

    def parent_made(self, path: str) -> str:
        """The place above for a new file or folder."""
        if self.is_free(path):
            return path
        folder = os.path.dirname(path)
        status = self.status(folder)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.root + path)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.root + path)
        system.make_folders(self.root + folder)
        return self.root + path

    def _copy(self, source: str, target: str, status: os.stat_result, keep: bool) -> None:
        if not stat.S_ISREG(status.st_mode):  # a pipe, a socket, a disk of others
            raise NotCopiedError(source)
        if keep and status.st_size > _room(self.root) // 2:
            raise NotCopiedError(source)
        # Whole at once for the other processes; the first of two copies counts.
        unfinished = f"{self.root}-{os.getpid()}-{threading.get_ident()}"
        descriptor = system.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
        try:
            if keep:
                _copy_content(source, descriptor)
        finally:
            system.close(descriptor)
        system.chmod(unfinished, stat.S_IMODE(status.st_mode) | stat.S_IRUSR | stat.S_IWUSR)
        if keep:
            system.utime(unfinished, ns=(status.st_atime_ns, status.st_mtime_ns))
        if system.exists(target):
            system.remove(unfinished)
        else:
            system.rename(unfinished, target)

    def _catch_up(self) -> None:
        with self._lock:
            for kind, path in self._log.news():
                (self._made if kind == FILE_MADE else self._gone).add(path)
                while path not in ("", "/") and os.path.dirname(path) not in self._changed_folders:
                    path = os.path.dirname(path)
                    self._changed_folders.add(path)
            self._resolved_folders = {}
            self._plain_folders = {}  # who is at it may write into the old one

    def _is_plain(self, folder: str) -> bool:
        known = self._plain_folders
        path = self.path_of(folder)
        plain = self.is_free(path) or not (path in self._changed_folders or self._is_new(path))
        plain = plain and self.real_path_of(folder) == path  # by no link that the trial made
        if len(known) < MOST_KNOWN:
            known[folder] = plain
        return plain

    def _is_new(self, path: str) -> bool:
        return self.is_gone(path) or (bool(self._changed_folders) and system.exists(self.root + path))

    def _resolved_folder(self, folder: str) -> str:
        """Looked up once for as long as the trial changes nothing."""
        known = self._resolved_folders
        path = known.get(folder)
        if path is None:
            path = self._resolved(folder, seen=True)
            if len(known) < MOST_KNOWN:
                known[folder] = path
        return path

    def _folder_of(self, dir_fd: Any) -> str:
        if not isinstance(dir_fd, int) or dir_fd < 0:
            return self.working_folder()
        return system.path_behind(dir_fd)

    def _resolved(self, text: str, seen: bool) -> str:
        """Without links; `seen`: as the view has them."""
        path, left, followed = "", text.split("/")[::-1], 0
        while left:
            part = left.pop()
            if part in ("", "."):
                continue
            if part == "..":
                path = path[: max(path.rfind("/"), 0)]
                continue
            target = self._link_at(f"{path}/{part}", seen)
            if target is None:
                path = f"{path}/{part}"
                continue
            followed += 1
            if followed > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), text)
            if target[:1] == "/":
                if seen and target.startswith(self.root + "/"):
                    target = target[len(self.root) :]
                path = ""
            left.extend(target.split("/")[::-1])
        return path or "/"

    def _link_at(self, path: str, seen: bool) -> Optional[str]:
        if seen and self._changed_folders:
            try:
                target: str = system.readlink(self.root + path)
                return target
            except OSError as error:
                if error.errno == errno.EINVAL or self.is_gone(path):  # something else is there, or nothing any more
                    return None
        try:
            target = system.readlink(path)
        except OSError:
            return None
        # An open pipe or socket has a name in /proc that leads nowhere.
        return None if path.startswith("/proc/") and ":[" in target else target


def _status(place: str) -> Optional[os.stat_result]:
    try:
        return system.lstat(place)
    except OSError:
        return None


def _room(folder: str) -> int:
    told = system.statvfs(folder)
    return told.f_bavail * told.f_frsize


def _copy_content(source: str, descriptor: int) -> None:
    original = system.open(source, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        while True:
            block = system.read(original, BLOCK)
            if not block:
                return
            while block:
                block = block[system.write(descriptor, block) :]
    finally:
        system.close(original)
