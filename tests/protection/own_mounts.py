"""Mounts for a test alone, which nobody outside it sees: disks, and an interpreter that other users can read.

For root only; they are gone with the process that holds them, whatever ends the test.
"""

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]

# Words: KIND PATH KIND PATH … What a mount hides is held before, and shown again.
HOLD = """
set -e
held=$(mktemp -d)
mount -t tmpfs -o mode=755 none "$held"
number=0
for word in "$@"; do
  case "$kind" in
    show) number=$((number + 1)); mkdir "$held/$number"; mount --rbind "$word" "$held/$number" ;;
    open) mount -t tmpfs -o mode=755 none "$word" ;;
    back) number=$((number - 1)); mkdir -p "$word"; mount --rbind "$held/$((1 + number))" "$word" ;;
    disk) mkdir -p "$word"; mount -t tmpfs -o mode=755 none "$word" ;;
    *) kind=$word; continue ;;
  esac
  kind=
done
umount -l "$held"
rmdir "$held"
echo held
exec sleep 1000
"""


class OwnMounts:
    def __init__(self, disks):
        shown, closed = _behind_closed_doors()
        words = [f"show {path}" for path in shown] + [f"open {path}" for path in closed]
        words += [f"back {path}" for path in reversed(shown)] + [f"disk {path}" for path in disks]
        pairs = [part for word in words for part in word.split(" ", 1)]
        line = ["unshare", "-m", "--propagation", "private", "sh", "-c", HOLD, "sh", *pairs]
        self._holder = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.there = self._holder.stdout.readline() == b"held\n"

    def see(self, path):
        """From outside."""
        return Path(f"/proc/{self._holder.pid}/root{path}")

    def command(self, words, here):
        into = ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", "--", "sh", "-c", 'cd "$0" && exec "$@"', str(here)]
        return [*into, *map(str, words)]

    def close(self):
        self._holder.kill()
        self._holder.wait()
        self._holder.stdout.close()


def can_be_had():
    return sys.platform == "linux" and os.geteuid() == 0 and bool(shutil.which("nsenter") and shutil.which("unshare"))


def _behind_closed_doors():
    """What a trial needs and others cannot reach: a venv, the Python below it, this repository; and what it lies behind."""
    needed = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, sysconfig.get_path("purelib"), SOURCE)}
    outer = {path: door for path in needed if (door := _closed(path)) is not None}
    shown = [path for path in sorted(outer) if not any(Path(other) in Path(path).parents for other in outer)]
    return shown, sorted(set(outer.values()))


def _closed(path):
    """The outermost folder above it that is not open to everybody."""
    for folder in reversed(Path(path).parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            return str(folder)
    return None
