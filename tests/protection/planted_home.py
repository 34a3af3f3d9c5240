"""A home and a data disk with everything that an attack may spoil, and how it is compared."""

import contextlib
import hashlib
import os
import sqlite3
import stat
import time
import zipfile
from pathlib import Path

WEEK_S = 7 * 86400


def plant(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kept.txt").write_text("kept\n" * 20, encoding="ascii")
    for name in ("kept.bin", "best.pt", "log.csv", "config.json", "other.bin"):
        (folder / name).write_bytes(name.encode("ascii") * 50)
    (folder / "full" / "inner").mkdir(parents=True)
    (folder / "full" / "inner" / "deep.bin").write_bytes(b"deep" * 50)
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("kept.txt")
    (folder / "way").symlink_to("full")
    with zipfile.ZipFile(folder / "kept.zip", "w") as archive:
        archive.writestr("a", "a")
    with contextlib.closing(sqlite3.connect(folder / "kept.db")) as database:
        database.execute("create table kept (a)")
        database.commit()


def age(top: Path) -> None:
    """Everything as old as what somebody else made last week."""
    then = time.time() - WEEK_S
    for inside, _, files in os.walk(top, topdown=False):
        for name in [*files, "."]:
            os.utime(os.path.join(inside, name), (then, then), follow_symlinks=False)


def snapshot(top: Path) -> dict[str, dict[str, object]]:
    """Of every name: `kind`, `content`, and what is said about it."""
    found = {}
    for inside, folders, files in os.walk(top):
        for name in [".", *folders, *files]:
            path = os.path.join(inside, name)
            told = os.lstat(path)
            found[os.path.relpath(path, top)] = {
                "kind": stat.S_IFMT(told.st_mode),
                "content": _content(path, told),
                "rights": stat.S_IMODE(told.st_mode),
                "owner": (told.st_uid, told.st_gid),
                "time": told.st_mtime_ns,
                "attributes": os.listxattr(path, follow_symlinks=False),
                "inode": told.st_ino,
                "names": told.st_nlink if stat.S_ISREG(told.st_mode) else 0,
            }
    return found


def _content(path, told):
    if stat.S_ISLNK(told.st_mode):
        return os.readlink(path)
    if stat.S_ISREG(told.st_mode):
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    return ""


ABOUT = ("rights", "owner", "time", "attributes")  # what Landlock does not hold


def differences(before, after, about=True):
    """Sentences. `about`: also where nothing but rights, owner, times and extended attributes changed."""
    told = [f"{name} is gone" for name in before if name not in after]
    told += [f"{name} is new" for name in after if name not in before]
    for name in before.keys() & after.keys():
        for what, value in before[name].items():
            if after[name][what] != value and (about or what not in ABOUT):
                told.append(f"{what} of {name}: {value} -> {after[name][what]}")
    return sorted(told)
