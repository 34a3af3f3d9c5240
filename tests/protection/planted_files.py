"""Files of a user's, and proof that nothing about them has changed."""

import hashlib
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

ELSEWHERE = [place for place in ("/tmp", "/var/tmp", "/dev/shm") if os.path.isdir(place)]


def plant(folder):
    """What users keep: results, checkpoints behind a link, a database, a repository."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.csv").write_text("epoch,loss\n1,0.5\n", encoding="ascii")
    (folder / "outputs" / "run").mkdir(parents=True)
    (folder / "outputs" / "run" / "best.pt").write_bytes(os.urandom(5000))
    (folder / "disk").mkdir()
    (folder / "disk" / "last.pt").write_bytes(b"weights of last week")
    (folder / "checkpoints").symlink_to(folder / "disk")
    with sqlite3.connect(folder / "study.db") as database:
        database.execute("create table trials (value)")
    database.close()
    os.chmod(folder / "results.csv", 0o640)
    os.utime(folder / "results.csv", (1, 2))
    return folder


def state(folder):
    """Of everything below, the folder included: kind, mode, owner, time of the last change, content."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        seen = path.lstat()
        content = (
            os.readlink(path) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        )
        found[str(path)] = (seen.st_mode, seen.st_uid, seen.st_gid, seen.st_mtime_ns, seen.st_ino, content)
    return found


class Homes:
    """A planted folder in each place that a script may write to."""

    def __init__(self, home):
        self.made = [Path(tempfile.mkdtemp(prefix="planted-", dir=place)) for place in ELSEWHERE]
        self.folders = [plant(folder) for folder in (home, *self.made)]
        self.before = [state(folder) for folder in self.folders]

    def unchanged(self):
        for folder, before in zip(self.folders, self.before, strict=True):
            assert state(folder) == before

    def remove(self):
        for folder in self.made:
            shutil.rmtree(folder)
