"""The machine as probes see it, replaceable in tests: files below a root, commands, environment, platform.

Tests give a folder and recorded outputs; the live one is this machine. A command is an argument list, has a time limit
and a limit on what it may print, and is ended with everything it started.
"""

from __future__ import annotations

import contextlib
import locale
import os
import platform
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from flatout.base.records import Missing, Struct

MOST_OUTPUT = 4 << 20  # a tool that floods us is cut off here
AFTER_END_S = 0.5  # how long a grandchild may keep the pipes open once the command itself has ended


class Output(Struct, frozen=True, kw_only=True):
    """How a command ended. `code` is None where it could not be started, negative where a signal ended it."""

    code: int | None
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False


Runner = Callable[[Sequence[str], float], Output]


class World(Struct, frozen=True, kw_only=True):
    root: Path
    run: Runner
    environ: Mapping[str, str]
    platform: str  # Linux, Windows, Darwin

    def path(self, absolute: str) -> Path:
        """Where `absolute` lies in this world."""
        return self.root / absolute.lstrip("/")

    def text(self, absolute: str) -> str | Missing:
        """A file's text, or why it cannot be had."""
        try:
            return self.path(absolute).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return Missing("not-found", absolute)
        except OSError as error:
            return Missing("unreadable", f"{absolute}: {error.strerror or error}")

    def words(self, absolute: str) -> str:
        """The same for a file of one short line; empty where it cannot be read."""
        text = self.text(absolute)
        return "" if isinstance(text, Missing) else text.strip("\0\n ")

    def entries(self, absolute: str) -> list[Path]:
        """What a folder holds, sorted by name; nothing where it cannot be listed."""
        try:
            return sorted(self.path(absolute).iterdir())
        except OSError:
            return []


def live(environ: Mapping[str, str] | None = None) -> World:
    surroundings = dict(os.environ if environ is None else environ)
    return World(root=Path("/"), run=runner(surroundings), environ=surroundings, platform=platform.system())


def runner(environ: Mapping[str, str]) -> Runner:
    return lambda command, limit_s: run(command, limit_s, environ)


def run(command: Sequence[str], limit_s: float, environ: Mapping[str, str]) -> Output:
    try:
        child = subprocess.Popen(
            list(command),
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except (OSError, ValueError) as error:
        return Output(code=None, stderr=str(error))
    assert child.stdout is not None
    assert child.stderr is not None
    readers = [_Reader(child.stdout), _Reader(child.stderr)]
    timed_out = False
    try:
        code: int | None = child.wait(limit_s)
    except subprocess.TimeoutExpired:
        timed_out = True
        code = _end(child)
    stdout, stderr = (reader.text() for reader in readers)
    return Output(code=code, stdout=stdout, stderr=stderr, timed_out=timed_out)


def _end(child: subprocess.Popen[bytes]) -> int | None:
    """Kill it with all it started. A process stuck inside the kernel does not die: it is left behind, not waited for."""
    with contextlib.suppress(OSError):
        if os.name == "posix":
            os.killpg(child.pid, signal.SIGKILL)
        else:
            subprocess.run(["taskkill", "/T", "/F", "/PID", str(child.pid)], capture_output=True, timeout=5, check=False)
    with contextlib.suppress(OSError):
        child.kill()
    try:
        return child.wait(1.0)
    except subprocess.TimeoutExpired:
        return None


class _Reader:
    """Drains a pipe in the background, so that neither a flood nor a forgotten grandchild can block us."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._parts: list[bytes] = []
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        kept = 0
        with contextlib.suppress(OSError, ValueError):
            while part := os.read(self._pipe.fileno(), 65536):
                if kept < MOST_OUTPUT:
                    self._parts.append(part)
                    kept += len(part)
        with contextlib.suppress(OSError):
            self._pipe.close()

    def text(self) -> str:
        self._thread.join(AFTER_END_S)
        return decoded(b"".join(self._parts))


def decoded(data: bytes) -> str:
    """UTF-8, else what this system writes (a Chinese Windows: cp936), else as much as can be read."""
    for encoding in ("utf-8", locale.getpreferredencoding(False)):
        with contextlib.suppress(UnicodeDecodeError, LookupError):
            return data.decode(encoding)
    return data.decode("utf-8", "replace")
