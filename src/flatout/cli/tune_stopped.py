"""When `flatout tune` is stopped by a signal or a full disk: measurements are kept, and the command to continue is printed."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from flatout.base.errors import FlatoutError
from flatout.base.printable import whole
from flatout.base.secret_forms import HIDDEN
from flatout.base.secrets import hide
from flatout.base.words import Words
from flatout.launch.interruption import Interruption, interruptible

RESUME = "--resume"


def go_on_with(typed: Sequence[str], script: Sequence[str], place: Path) -> str:
    """The command that goes on: as it was typed, with the folder. What the plan holds already is ignored then."""
    options = list(typed[: len(typed) - len(script)])
    kept: list[str] = []
    while options:
        word = options.pop(0)
        if word == RESUME:
            del options[:1]
        elif not word.startswith(f"{RESUME}="):
            kept.append(word)
    folder = os.path.relpath(place) if place.is_relative_to(Path.cwd()) else str(place)
    return shlex.join(["flatout", "tune", RESUME, whole(folder), *hide([*kept, *script])])


def unharmed(search: Callable[[], int], place: Path, again: str, words: Words, say: Callable[[str], None]) -> int:
    """The exit code of the search. Stopped, it says so in a sentence; everything that it started is gone by then."""
    if HIDDEN in again:
        again = words("tune-stopped.hidden", again=again, hidden=HIDDEN)
    try:
        with interruptible():
            return search()
    except Interruption as stop:
        say(words("tune-stopped.interrupted" if _begun(place) else "tune-stopped.not-begun", again=again))
        return stop.exit_code
    except FlatoutError:
        _begun(place)
        raise
    except OSError as error:
        told = {"detail": error.strerror or str(error), "path": error.filename or place}
        say(words("tune-stopped.disk" if _begun(place) else "tune-stopped.disk-not-begun", **told, again=again))
        return 1


def _begun(place: Path) -> bool:
    """Whether there is anything to go on from. A folder without it is of no use to anybody."""
    from flatout.tune.execution.session import JOURNAL

    journal = place / JOURNAL
    if journal.exists() and journal.stat().st_size:
        return True
    with contextlib.suppress(OSError):
        journal.unlink(missing_ok=True)
        (place / "trials.log").unlink(missing_ok=True)
        place.rmdir()
    return False
