"""Which folders a command may write to, judged by its arguments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

# Too much to be looked at file by file; and where everybody writes.
NEVER = ("/", "/dev", "/proc", "/sys", "/tmp", "/home", "/usr", "/var", "/mnt", "/media", "/etc", "/opt")
EVERYBODYS = ("/dev/shm", "/run", "/var/tmp")


def folders_of(words: Sequence[str], here: Path) -> list[Path]:
    """What a command may write to: the working folder, and the folders that its arguments name; the outermost of each."""
    here = here.resolve()
    found = [here]
    for word in words:
        value = word.split("=", 1)[-1]
        if os.sep in value and not value.startswith("-"):
            # As it stands where no user has that name: `~hydra/launcher` is an argument of Hydra's.
            folder = _nearest(here / os.path.expanduser(value))
            if folder is not None:
                found.append(folder)
    kept = [folder for folder in dict.fromkeys(found) if folder == here or str(folder) not in (*NEVER, *EVERYBODYS)]
    return [folder for folder in kept if not any(other in folder.parents for other in kept)]


def _nearest(path: Path) -> Path | None:
    path = Path(os.path.realpath(path))  # Path.resolve and is_dir raise at links in a circle and at very long words
    while not os.path.isdir(path):
        if path.parent == path:
            return None
        path = path.parent
    return path
