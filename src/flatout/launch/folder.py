"""`.flatout/runs/<id>`: where a run's records lie."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from flatout.base.errors import FlatoutError

HOME = ".flatout"

# A job is smaller than this: where it does not fit, nothing will.
ROOM = 1024


class NoPlaceForRecordsError(FlatoutError):
    """Neither folder can be written, or both disks are full: the script can still run, unobserved."""


def new_run(base: Path, now: float) -> tuple[str, Path]:
    """(id, folder), in the working folder; where that cannot be written, in the temporary one."""
    run_id = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{secrets.token_hex(2)}"
    # Called inside: asking for the temporary folder fails too where nothing can be written.
    places: tuple[Callable[[], Path], ...] = (lambda: base, lambda: Path(tempfile.gettempdir()))
    for place in places:
        try:
            return run_id, _make(place().resolve() / HOME, run_id)
        except OSError as error:
            problem = error
    raise NoPlaceForRecordsError("error.no-place-for-records", detail=problem.strerror or str(problem))


def _make(home: Path, run_id: str) -> Path:
    folder = home / "runs" / run_id
    folder.mkdir(parents=True)
    ignore = home / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="ascii")  # records are the machine's, not the repository's
    room = folder / ".room"
    room.write_bytes(b" " * ROOM)
    room.unlink()
    return folder
