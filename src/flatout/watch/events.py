"""What an alert does outside the screen: it ends the watching with a code, and it is told to another program."""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import shutil
import subprocess
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

from flatout.base import records
from flatout.base.errors import UsageError
from flatout.base.records import Record, field
from flatout.measure.model import Note
from flatout.watch.alerts import Alert

# Exit codes of `--until`, documented in docs/usage.md: scripts stand on them.
CODES = {
    "no-step": 10,
    "loss-not-a-number": 11,
    "memory-rising": 12,
    "temperature-limit": 13,
    "another-process": 14,
    "run-ended": 15,  # in another way than by itself
}
CAME_TO_ITS_END = 0
NONE_CAME = 20  # before `--for` was over
ANY = "any"

TELLING_S = 30.0  # for the other program to take it
AT_THE_END_S = 5.0
WAITING = 100


class Event(Record):
    """What `--notify` gets on standard input."""

    KIND: ClassVar[str] = "watch-event"

    t: float
    code: str
    about: str
    host: str
    run_id: str | None = None
    evidence: dict[str, Any] = field(default_factory=dict)


def events_named(asked: Sequence[str]) -> frozenset[str]:
    """Of `--until`: several with commas, or given several times."""
    names = [name.strip() for value in asked for name in value.split(",") if name.strip()]
    for name in names:
        if name != ANY and name not in CODES:
            raise UsageError("error.watch-until", name=name, known=", ".join([*CODES, ANY]))
    if asked and not names:
        raise UsageError("error.watch-until", name=asked[0], known=", ".join([*CODES, ANY]))
    return frozenset(CODES) if ANY in names else frozenset(names)


def code_of(fresh: Sequence[Alert], wanted: frozenset[str]) -> int | None:
    """Of the first that is wanted."""
    for alert in fresh:
        if alert.code in wanted:
            own_end = alert.code == "run-ended" and alert.evidence.get("how") == "finished"
            return CAME_TO_ITS_END if own_end else CODES[alert.code]
    return None


def command_of(text: str) -> list[str]:
    """A program and its arguments; no shell reads them, so that the name of a process cannot become a command."""
    try:
        words = shlex.split(text, posix=os.name != "nt")
    except ValueError as error:
        raise UsageError("error.watch-notify", command=text, detail=str(error)) from error
    if not words or shutil.which(words[0]) is None:
        raise UsageError("error.watch-notify-missing", command=text, program=words[0] if words else "")
    return words


class Notifier:
    """Tells one event after the other, in a thread: a program that hangs must not hold up what is watched."""

    def __init__(self, command: list[str], host_name: str) -> None:
        self._command, self._host = command, host_name
        self._waiting: queue.Queue[Event | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._work, name="flatout-notify", daemon=True)
        self._thread.start()
        self.notes: list[Note] = []

    def tell(self, t: float, fresh: Sequence[Alert], run_id: str | None) -> None:
        for alert in fresh:
            event = Event(t=t, code=alert.code, about=alert.about, host=self._host, run_id=run_id, evidence=alert.evidence)
            with contextlib.suppress(queue.Full):
                self._waiting.put_nowait(event)

    def close(self) -> None:
        """What was met is told; a program that takes too long is left to itself."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(AT_THE_END_S)

    def _work(self) -> None:
        while (event := self._waiting.get()) is not None:
            problem = self._told(event)
            if problem is not None and not self.notes:
                self.notes.append(Note(code="notify-failed", params={"command": self._command[0], "detail": problem}))

    def _told(self, event: Event) -> str | None:
        try:
            ended = subprocess.run(
                self._command,
                input=records.encode(event),
                stdout=subprocess.DEVNULL,  # the window is on the terminal
                stderr=subprocess.DEVNULL,
                timeout=TELLING_S,
                check=False,
                start_new_session=True,  # Ctrl-C ends the watching, not what tells of it
            )
        except subprocess.TimeoutExpired:
            return f"> {TELLING_S:.0f} s"
        except (OSError, TypeError, ValueError) as error:
            return getattr(error, "strerror", None) or str(error)
        return None if ended.returncode == 0 else f"exit {ended.returncode}"
