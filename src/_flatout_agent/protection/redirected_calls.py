"""Python's own file calls, put through the view of `shadow_files`: what is written lands there, and is read from there."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from typing import Any, Callable, Iterable

from _flatout_agent.protection import system_calls as system
from _flatout_agent.protection.folder_entries import Listing
from _flatout_agent.protection.shadow_files import NotCopiedError, ShadowFiles

WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND | os.O_CREAT
TEMPORARY = getattr(os, "O_TMPFILE", 0)
READ_MODES = frozenset(["r", "rb", "rt", "br", "tr"])

# Calls that take one file, and only look at it …
LOOKING = ("stat", "access", "statvfs", "pathconf", "getxattr", "listxattr")
LOOKING_AT_LINKS = ("lstat", "readlink")
# … or change something about it.
CHANGING = ("chmod", "chown", "utime", "truncate", "setxattr", "removexattr", "chflags")
CHANGING_LINKS = ("lchown", "lchmod", "lchflags")
NEW_NODES = ("mkfifo", "mknod")


class Redirected:
    """Stands for a function of C: no method when found in a class, and pickled by its name."""

    def __init__(self, original: Any, call: Callable[..., Any], root: str) -> None:
        for name in ("__name__", "__qualname__", "__doc__", "__text_signature__"):
            setattr(self, name, getattr(original, name, None))
        self.__module__ = "io" if original is system.open_file else "os"
        self.__wrapped__ = original
        self._root = root
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._call(*args, **kwargs)
        except OSError as error:
            for number, name in enumerate(("filename", "filename2")):
                said = getattr(error, name)
                if isinstance(said, (str, bytes)) and os.fsdecode(said).startswith(self._root) and len(args) > number:
                    setattr(error, name, args[number])  # as the script named it
            raise

    def __reduce__(self) -> str:
        return str(self.__wrapped__.__name__)


class RedirectedOpen(Redirected):
    """Most files are read, and lie in a folder that is as it was: they leave here, where no name has to be given back."""

    def __init__(self, original: Any, call: Callable[..., Any], files: ShadowFiles) -> None:
        super().__init__(original, call, files.root)
        self._is_untouched = files.is_untouched

    def __call__(self, file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
        if type(mode) is str and mode in READ_MODES and self._is_untouched(file):
            return system.open_file(file, mode, *args, **kwargs)
        return super().__call__(file, mode, *args, **kwargs)


class Calls:
    """The replacements; each has the parameters of what it stands for."""

    def __init__(self, files: ShadowFiles, guard: Any) -> None:
        self._files = files
        self._guard = guard
        self._original = {name: getattr(os, name) for name in dir(os)}

    # -- opening ---------------------------------------------------------------------------------------------------

    def open(self, file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, int) or not isinstance(mode, str):
            return system.open_file(file, mode, *args, **kwargs)
        name = os.fspath(file)
        if kwargs.get("opener") is not None or len(args) > 5:  # what that opens is judged by itself
            return self._guard.opening(name, lambda: system.open_file(name, mode, *args, **kwargs))
        path = self._files.path_of(name)

        def opener(_: Any, flags: int) -> int:
            try:
                return self._opened(name, path, flags, 0o666)
            except OSError as error:
                error.filename = name
                raise

        # The file keeps the name that the script gave it.
        return self._guard.opening(name, lambda: system.open_file(name, mode, *args, **{**kwargs, "opener": opener}))

    def os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> int:
        if not flags & WRITING and dir_fd is None and self._files.is_untouched(path):
            return system.open(path, flags, mode)
        name = os.fspath(path)
        follow = not flags & getattr(os, "O_NOFOLLOW", 0)
        return self._opened(name, self._files.path_of(name, dir_fd, follow), flags, mode)

    def _opened(self, name: Any, path: str, flags: int, mode: int) -> int:
        files = self._files
        if TEMPORARY and flags & TEMPORARY == TEMPORARY:
            return system.open(files.parent_made(os.path.join(path, "x"))[:-2] or "/", flags, mode)
        if not flags & WRITING or (flags & WRITING == os.O_CREAT and files.status(path) is not None):
            found: int = system.open(files.place(path), flags & ~os.O_CREAT, mode)
            return found
        if not files.is_free(path):
            status = files.status(path)
            if status is not None and flags & os.O_EXCL and flags & os.O_CREAT:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
            if status is not None and stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        place = self._writable(path, keep=not flags & os.O_TRUNC)
        descriptor: int = system.open(place, flags, mode)
        if place != path:
            files.made(path)
        return descriptor

    def _writable(self, path: str, keep: bool = True, whole: bool = False) -> str:
        try:
            return self._files.whole_for_writing(path) if whole else self._files.for_writing(path, keep)
        except NotCopiedError:
            self._guard.refuse(path)
            raise

    # -- one file --------------------------------------------------------------------------------------------------

    def looking(self, call: Callable[..., Any], follow: bool) -> Callable[..., Any]:
        def look(path: Any, *args: Any, **kwargs: Any) -> Any:
            dir_fd = kwargs.get("dir_fd")
            if isinstance(path, int) or (dir_fd is None and self._files.is_untouched(path)):
                return call(path, *args, **kwargs)
            found = self._files.path_of(path, dir_fd, kwargs.get("follow_symlinks", follow))
            kwargs.pop("dir_fd", None)
            place = self._files.place(found)
            try:
                return call(os.fsencode(place) if isinstance(path, bytes) else place, *args, **kwargs)
            except OSError as error:
                error.filename = path
                raise

        return look

    def changing(self, call: Callable[..., Any], follow: bool) -> Callable[..., Any]:
        def change(path: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, int):
                return call(path, *args, **kwargs)
            found = self._files.path_of(path, kwargs.pop("dir_fd", None), kwargs.get("follow_symlinks", follow))
            if self._files.status(found) is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            place = self._writable(found)
            self._files.made(found)
            return call(place, *args, **kwargs)

        return change

    def new_node(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def make(path: Any, *args: Any, **kwargs: Any) -> Any:
            found = self._new(path, kwargs.pop("dir_fd", None))
            call(self._files.parent_made(found), *args, **kwargs)
            self._files.made(found)

        return make

    def _new(self, name: Any, dir_fd: Any, source: Any = None) -> str:
        path = self._files.path_of(name, dir_fd, follow=False)
        if self._files.status(path) is not None:
            names = (name,) if source is None else (source, None, name)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), *names)
        return path

    def remove(self, path: Any, *, dir_fd: Any = None) -> None:
        found, status = self._there(path, dir_fd)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self._take_away(found, system.remove)

    def rmdir(self, path: Any, *, dir_fd: Any = None) -> None:
        found, status = self._there(path, dir_fd)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if not self._files.is_free(found) and self._names(found):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self._take_away(found, system.rmdir)

    def _there(self, name: Any, dir_fd: Any) -> tuple[str, os.stat_result]:
        path = self._files.path_of(name, dir_fd, follow=False)
        status = self._files.status(path)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return path, status

    def _take_away(self, path: str, call: Callable[[str], None]) -> None:
        if self._files.is_free(path):
            call(path)
            return
        if system.exists(self._files.root + path):
            call(self._files.root + path)
        self._files.removed(path)

    def _names(self, path: str) -> list[str]:
        names = self._files.names_in(path)
        return system.listdir(self._files.place(path)) if names is None else names

    # -- two files -------------------------------------------------------------------------------------------------

    def rename(self, src: Any, dst: Any, *, src_dir_fd: Any = None, dst_dir_fd: Any = None) -> None:
        files = self._files
        source, status = self._there(src, src_dir_fd)
        target = files.path_of(dst, dst_dir_fd, follow=False)
        if files.is_free(source) and files.is_free(target):
            system.rename(source, target)
            return
        there = files.status(target)
        above = files.parent_made(target)
        if there is not None and stat.S_ISDIR(there.st_mode) != stat.S_ISDIR(status.st_mode):
            number = errno.EISDIR if stat.S_ISDIR(there.st_mode) else errno.ENOTDIR
            raise OSError(number, os.strerror(number), src, None, dst)
        if there is not None and stat.S_ISDIR(there.st_mode) and self._names(target):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), src, None, dst)
        system.rename(self._writable(source, whole=True), above)
        files.removed(target)
        files.made(target, other=True)
        files.removed(source)

    def link(self, src: Any, dst: Any, *, src_dir_fd: Any = None, dst_dir_fd: Any = None, follow_symlinks: bool = True) -> None:
        source, _ = self._there(src, src_dir_fd)
        target = self._new(dst, dst_dir_fd, src)
        self._original["link"](self._writable(source), self._files.parent_made(target))
        self._files.made(target)

    def symlink(self, src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: Any = None) -> None:
        target = self._new(dst, dir_fd, src)
        system.symlink(src, self._files.parent_made(target))
        self._files.made(target, other=True)

    # -- folders ---------------------------------------------------------------------------------------------------

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: Any = None) -> None:
        found = self._new(path, dir_fd)
        system.mkdir(self._files.parent_made(found), mode)
        self._files.made(found)

    def listdir(self, path: Any = None) -> list[Any]:
        found, names = self._listed(path)
        if names is None:
            return list(self._original["listdir"](found))
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    def scandir(self, path: Any = None) -> Any:
        found, names = self._listed(path)
        if names is None:
            return self._original["scandir"](found)
        top = path if path is not None else "."
        return Listing(os.fspath(top) if not isinstance(top, int) else "", names, self._files, self._files.path_of(found))

    def _listed(self, path: Any) -> tuple[Any, Any]:
        """What to list, and the names in it where the trial changed something there."""
        if isinstance(path, int):
            found = self._files.path_of(system.path_behind(path))
        else:
            found = self._files.path_of("." if path is None else path)
        names, place = self._files.names_in(found), self._files.place(found)
        status = self._files.status(found)
        if status is None or not stat.S_ISDIR(status.st_mode):
            number = errno.ENOENT if status is None else errno.ENOTDIR
            raise OSError(number, os.strerror(number), path)
        given = "." if path is None else path
        as_named = None if isinstance(path, int) else os.path.normpath(os.path.join(system.getcwd(), os.fsdecode(given)))
        if names is None and found == as_named:
            return given, None
        return found, system.listdir(place) if names is None else names

    def chdir(self, path: Any) -> None:
        if isinstance(path, int):
            self._original["chdir"](path)
        else:
            self._original["chdir"](self._files.place(self._files.path_of(path)))
        self._files.working_folder_changes()

    def getcwd(self) -> str:
        return self._files.working_folder()

    def getcwdb(self) -> bytes:
        return os.fsencode(self._files.working_folder())


def put_on(files: ShadowFiles, guard: Any) -> None:
    """In place of Python's own, wherever a module that is loaded already holds them."""
    calls = Calls(files, guard)
    replaced: dict[int, Redirected] = {}
    for original, call in _replacements(calls):
        reads = original is system.open_file
        replaced[id(original)] = RedirectedOpen(original, call, files) if reads else Redirected(original, call, files.root)
    for name, module in list(sys.modules.items()):
        if name not in ("posix", "nt", "_io") and not name.startswith("_flatout_agent.protection"):
            _exchange(module, replaced)
    for asked in ("supports_dir_fd", "supports_fd", "supports_follow_symlinks", "supports_effective_ids"):
        able = getattr(os, asked)
        able.update([replaced[id(one)] for one in able if id(one) in replaced])
    import shutil

    shutil._use_fd_functions = False  # type: ignore[attr-defined]  # folder by folder through names, which are redirected


def _replacements(calls: Calls) -> Iterable[tuple[Any, Callable[..., Any]]]:
    yield io.open, calls.open
    yield os.open, calls.os_open
    for names, make, follow in (
        (LOOKING, calls.looking, True),
        (LOOKING_AT_LINKS, calls.looking, False),
        (CHANGING, calls.changing, True),
        (CHANGING_LINKS, calls.changing, False),
    ):
        for name in names:
            if hasattr(os, name):
                yield getattr(os, name), make(getattr(os, name), follow)
    for name in NEW_NODES:
        if hasattr(os, name):
            yield getattr(os, name), calls.new_node(getattr(os, name))
    yield os.unlink, calls.remove
    yield os.replace, calls.rename
    for name in ("remove", "rmdir", "rename", "link", "symlink", "mkdir", "listdir", "scandir", "chdir", "getcwd", "getcwdb"):
        yield getattr(os, name), getattr(calls, name)


def _exchange(module: Any, replaced: dict[int, Redirected]) -> None:
    for name, value in list(getattr(module, "__dict__", {}).items()):
        if id(value) in replaced:
            setattr(module, name, replaced[id(value)])
        elif isinstance(value, type) and getattr(module, "__name__", "") in ("pathlib", "glob", "tempfile"):
            for inner, held in list(vars(value).items()):
                _exchange_in_class(value, inner, held, replaced)


def _exchange_in_class(owner: type, name: str, held: Any, replaced: dict[int, Redirected]) -> None:
    """Python's own classes keep some of them, as attributes or as defaults of parameters."""
    plain = getattr(held, "__func__", held)
    if id(plain) in replaced:
        setattr(owner, name, replaced[id(plain)])
    elif getattr(plain, "__defaults__", None):
        plain.__defaults__ = tuple(replaced.get(id(one), one) for one in plain.__defaults__)
