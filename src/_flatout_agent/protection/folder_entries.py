"""What `os.scandir` gives of a folder in which a trial changed something: entries as the view has them."""

from __future__ import annotations

import os
import stat
from typing import Any, Iterator

from _flatout_agent.protection import system_calls as system
from _flatout_agent.protection.shadow_files import ShadowFiles


class Entry:
    """As `os.DirEntry`, of which Python lets nobody else make one."""

    def __init__(self, top: Any, name: str, files: ShadowFiles, path: str) -> None:
        self.name: Any = os.fsencode(name) if isinstance(top, bytes) else name
        self.path = os.path.join(top, self.name)
        self._files = files
        self._path = path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        path = self._files.path_of(self._path) if follow_symlinks else self._path
        return system.lstat(self._files.place(path))

    def inode(self) -> int:
        return self.stat(follow_symlinks=False).st_ino

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(stat.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(stat.S_ISREG, follow_symlinks)

    def is_symlink(self) -> bool:
        return self._is(stat.S_ISLNK, False)

    def is_junction(self) -> bool:
        return False

    def _is(self, kind: Any, follow: bool) -> bool:
        try:
            return bool(kind(self.stat(follow_symlinks=follow).st_mode))
        except FileNotFoundError:
            return False

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"


class Listing:
    """An iterator that may be closed, and used in a `with`."""

    def __init__(self, top: Any, names: list[str], files: ShadowFiles, path: str) -> None:
        self._entries: Iterator[Entry] = iter([Entry(top, name, files, os.path.join(path, name)) for name in names])

    def __iter__(self) -> Listing:
        return self

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> Listing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())
