"""Runs the script as a child in our own foreground process group: terminal, descriptors, signals, exit.

The child is started with every descriptor as it is. Signals meant for the run are passed on; those the terminal sends
reach the child by themselves, because it is in the same group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from flatout.base.errors import FlatoutError

PASSED_ON = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT")
    if hasattr(signal, name)
)

FROM_KERNEL = 0x80  # si_code of a signal that the terminal sent


def run(command: Sequence[str], environ: Mapping[str, str], beside: AbstractContextManager[object] | None = None) -> int:
    """Run to the end; the child's return code, negative where a signal ended it.

    `beside` is entered once the child is there and signals are blocked, so that a thread which it starts takes none of them.
    """
    early: list[int] = []
    with _handled(lambda number, frame: early.append(number)):
        try:
            child = subprocess.Popen(command, env=dict(environ), close_fds=False)
        except OSError as error:
            raise FlatoutError("error.cannot-start", command=command[0], detail=error.strerror or str(error)) from error
        if hasattr(signal, "pthread_sigmask"):
            return _wait_for_signals(child, early, beside)
        with beside or contextlib.nullcontext():
            return _wait(child)


@contextlib.contextmanager
def _handled(handler: Callable[[int, Any], None]) -> Iterator[None]:
    # Functions, never SIG_IGN: an ignored signal would stay ignored in the child. What whoever started us wanted ignored
    # (nohup, a shell's background job) stays ignored, here and in the child.
    before = {number: signal.signal(number, handler) for number in not_ignored(PASSED_ON)}
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)


def not_ignored(numbers: Sequence[signal.Signals]) -> list[signal.Signals]:
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def _wait(child: subprocess.Popen[bytes]) -> int:
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            return child.wait()


def _wait_for_signals(child: subprocess.Popen[bytes], early: list[int], beside: AbstractContextManager[object] | None) -> int:
    watched = {*PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        for number in early:
            _pass_on(child, number, from_terminal=False)
        with beside or contextlib.nullcontext():
            while (code := child.poll()) is None:
                number, from_terminal = _next_signal(watched)
                if number != signal.SIGCHLD:
                    _pass_on(child, number, from_terminal)
        return code
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _next_signal(watched: set[signal.Signals]) -> tuple[int, bool]:
    if sys.platform == "darwin":
        # macOS cannot tell who sent it: in the foreground, assume the terminal.
        return signal.sigwait(watched), _in_foreground()
    information = signal.sigwaitinfo(watched)
    return information.si_signo, information.si_code == FROM_KERNEL


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(2) == os.getpgrp()
    except OSError:
        return False


def _pass_on(child: subprocess.Popen[bytes], number: int, from_terminal: bool) -> None:
    if not from_terminal:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)


ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))


class Ending:
    """From `hold()` on the first signal waits until the record is written; a second one ends us at once.

    Whoever presses Ctrl-C twice, or sends SIGTERM to all processes of a job, wants the training to end, not its record lost.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._hits = 0

    def __enter__(self) -> Ending:
        return self

    def hold(self) -> None:
        self._before = {number: signal.signal(number, self._hit) for number in not_ignored(ENDING)}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hit(self, number: int, frame: object) -> None:
        self._hits += 1
        if self._hits > 1:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def end_like(returncode: int) -> int:
    """The exit status to leave with: the child's own, by its own signal where one ended it."""
    if returncode >= 0:
        return returncode
    number = -returncode
    if os.name == "posix":
        _leave_no_second_core()
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # who read it may be gone
                stream.flush()
        os.kill(os.getpid(), number)
    return 128 + number


def _leave_no_second_core() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
