"""Trials that overwrite nothing of the user's: the folders that a script may write to are seen through an overlay.

The child gets a mount namespace of its own, in which each of these folders is the real one below and an empty one
above. What it writes, renames or deletes lands above, and is thrown away. Needs Linux and either root or user namespaces.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from flatout.launch.last_watch import remove
from flatout.launch.scratch import SHARED_MEMORY, Scratch, outside

# Constants; paths and command come as arguments, of each folder the real one and three of ours, "--" after the last.
# Bound aside first: an overlay shows nothing of what is mounted below it, so each such mount gets an overlay of its own.
# Unbound at once: a script that clears the temporary folder must not find the user's files there.
BIND = """
while [ "$1" != -- ]; do
  mount --rbind "$1" "$2" || exit 97
  shift 2
done
shift
exec "$@"
"""
MOUNT = """
here=$PWD
while [ "$1" != -- ]; do
  mount -t overlay overlay -o "lowerdir=$2,upperdir=$3,workdir=$4" "$1" || exit 97
  umount -l "$2" || exit 97
  shift 4
done
shift
cd "$here" || exit 97
exec "$@"
"""
PROBE = 'name=$1; shift; for folder do : > "$folder/$name"; done; exit 0'
NO_OVERLAY = 97

# An overlay cannot lie on an overlay, which a container's own folders are; memory can always take it.
UPPER_PLACES = (None, SHARED_MEMORY)
NEVER = ("/", "/dev", "/proc", "/sys", "/tmp", "/home", "/usr", "/var", "/mnt", "/media", "/etc", "/opt")


class Sandbox:
    """A `Protection`. Where it cannot be had, `ready` is False."""

    kind = "overlay"
    gaps: tuple[str, ...] = ()

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders
        self.environ: dict[str, str] = {}
        self.job: dict[str, Any] = {}
        self.shared_place = outside(folders)
        self._scratch: Scratch | None = None
        self._way: list[str] = []

    @property
    def ready(self) -> bool:
        return bool(self._way)

    @property
    def above(self) -> list[Path]:
        """The folder that takes what is written."""
        return [self._scratch.path] if self._scratch is not None else []

    def __enter__(self) -> Sandbox:
        if sys.platform == "linux" and shutil.which("unshare") and shutil.which("mount"):
            for place in UPPER_PLACES:
                if self._try(place):
                    break
        return self

    def __exit__(self, *_: object) -> None:
        self._forget()

    def wrap(self, command: Sequence[str]) -> list[str]:
        """The command inside, with what an earlier one wrote gone."""
        if not self._way or self._scratch is None:
            return list(command)
        above = self._scratch.path / "layers"
        remove(str(above))
        bound: list[str] = []
        layers: list[str] = []
        for number, folder in enumerate([*self.folders, *mounts_below(self.folders)]):
            parts = [above / f"{number}-{part}" for part in ("lower", "upper", "work")]
            for part in parts:
                part.mkdir(parents=True)
            bound += [str(folder), str(parts[0])]
            layers += [str(folder), *map(str, parts)]
        return [*self._way, "sh", "-c", BIND, "sh", *bound, "--", "sh", "-c", MOUNT, "sh", *layers, "--", *command]

    def share(self, folder: Path) -> None:
        """Whoever makes it puts it where nothing is covered (`scratch.outside`)."""

    def changed(self) -> list[Path]:
        return []

    def refused(self) -> str | None:
        return None

    def _try(self, place: str | None) -> bool:
        try:
            self._scratch = Scratch(place)
        except OSError:
            return False
        ways = (["unshare", "--mount", "--propagation", "private"], ["unshare", "--user", "--map-root-user", "--mount"])
        for way in ways if os.geteuid() == 0 else ways[1:]:
            self._way = way
            if self._holds():
                return True
        self._forget()
        return False

    def _holds(self) -> bool:
        """Proved by writing: nothing may come through. A mount on `/` succeeds, too, and holds nothing."""
        name = f".flatout-probe-{secrets.token_hex(4)}"
        inside = [*self.folders, *mounts_below(self.folders)]
        probe = ["sh", "-c", PROBE, "sh", name, *map(str, inside)]
        try:
            ended = subprocess.run(self.wrap(probe), capture_output=True, check=False, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return False
        through = [folder / name for folder in inside if (folder / name).exists()]
        for path in through:
            path.unlink(missing_ok=True)
        return ended.returncode == 0 and not through

    def _forget(self) -> None:
        self._way = []
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None


def folders_of(words: Sequence[str], here: Path) -> list[Path]:
    """What a command may write to: the working folder, and the folders that its arguments name; the outermost of each."""
    here = here.resolve()
    found = [here]
    for word in words:
        value = word.split("=", 1)[-1]
        if os.sep in value and not value.startswith("-"):
            path = Path(value).expanduser()
            folder = _nearest(path if path.is_absolute() else here / path)
            if folder is not None:
                found.append(folder)
    kept = [folder for folder in dict.fromkeys(found) if folder == here or str(folder) not in NEVER]
    return [folder for folder in kept if not any(other in folder.parents for other in kept)]


def mounts_below(folders: Iterable[Path]) -> list[Path]:
    """What is mounted inside these folders, the outermost first."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    # Blanks in the path are written as \\040.
    points = {Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[4])) for line in lines}
    inside = [point for point in points if any(folder in point.parents for folder in folders) and point.is_dir()]
    return sorted(inside, key=lambda point: len(point.parts))


def _nearest(path: Path) -> Path | None:
    path = path.resolve()
    while not path.is_dir():
        if path.parent == path:
            return None
        path = path.parent
    return path
