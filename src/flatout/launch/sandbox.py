"""Trials that overwrite nothing of the user's: the folders that a script may write to are seen through an overlay.

The child gets a mount namespace of its own, in which each of these folders is the real one below and an empty one
above. What it writes, renames or deletes lands above, and is thrown away. Needs Linux and either root or user namespaces.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# A constant; paths and command come as arguments. Folders in triples: real, upper, work; "--" ends them.
MOUNT = """
here=$PWD
while [ "$1" != -- ]; do
  mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3" "$1" || exit 97
  shift 3
done
shift
cd "$here" || exit 97
exec "$@"
"""
NO_OVERLAY = 97

# An overlay cannot lie on an overlay, which a container's own folders are; memory can always take it.
UPPER_PLACES = (None, "/dev/shm")
NEVER = ("/", "/dev", "/proc", "/sys", "/tmp", "/home", "/root", "/usr", "/var", "/mnt", "/media", "/etc", "/opt")


class Sandbox:
    """Where it cannot be had, `ready` is False and the caller must ask."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders
        self._upper: Path | None = None
        self._way: list[str] = []

    @property
    def ready(self) -> bool:
        return bool(self._way)

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
        if not self._way or self._upper is None:
            return list(command)
        shutil.rmtree(self._upper, ignore_errors=True)
        layers: list[str] = []
        for number, folder in enumerate(self.folders):
            upper, work = self._upper / f"{number}-upper", self._upper / f"{number}-work"
            upper.mkdir(parents=True)
            work.mkdir()
            layers += [str(folder), str(upper), str(work)]
        return [*self._way, "sh", "-c", MOUNT, "sh", *layers, "--", *command]

    def _try(self, place: str | None) -> bool:
        try:
            self._upper = Path(tempfile.mkdtemp(prefix="flatout-above-", dir=place))
        except OSError:
            return False
        ways = (["unshare", "--mount", "--propagation", "private"], ["unshare", "--user", "--map-root-user", "--mount"])
        for way in ways if os.geteuid() == 0 else ways[1:]:
            self._way = way
            probe = subprocess.run(self.wrap(["true"]), capture_output=True, check=False, timeout=20)
            if probe.returncode == 0:
                return True
        self._forget()
        return False

    def _forget(self) -> None:
        self._way = []
        if self._upper is not None:
            # A work folder of an overlay belongs to the kernel's root and may not be ours to delete: what is left is empty.
            shutil.rmtree(self._upper, ignore_errors=True)
            self._upper = None


def folders_of(words: Sequence[str], here: Path) -> list[Path]:
    """What a command may write to: the working folder, and the folders that its arguments name; the outermost of each."""
    found = [here.resolve()]
    for word in words:
        value = word.split("=", 1)[-1]
        if os.sep in value and not value.startswith("-"):
            path = Path(value).expanduser()
            folder = _nearest(path if path.is_absolute() else here / path)
            if folder is not None:
                found.append(folder)
    kept = [folder for folder in dict.fromkeys(found) if str(folder) not in NEVER]
    return [folder for folder in kept if not any(other in folder.parents for other in kept)]


def _nearest(path: Path) -> Path | None:
    path = path.resolve()
    while not path.is_dir():
        if path.parent == path:
            return None
        path = path.parent
    return path
