"""Which files this command's own output goes to: `flatout tune train.py > log.txt`.

They change while a trial runs, and no trial has changed them. The log of `| tee log.txt` is open in another process:
`changed_files.py` knows such files.
"""

from __future__ import annotations

import contextlib
import os

File = tuple[int, int]  # its device and its number there


def own_output() -> set[File]:
    found = set()
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            told = os.fstat(descriptor)
            found.add((told.st_dev, told.st_ino))
    return found
