"""Ctrl-C, SIGTERM and a closed terminal during trials: the first ends them cleanly, further ones wait."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from flatout.launch.child import ENDING

PATIENCE = 4  # so many, and whoever sends them wants it to end at once, in order or not: the keeper tidies up


class Interruption(BaseException):
    """Not an `Exception`: nobody on the way may take it for a fault of a trial."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        return 128 + self.number


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raises an Interruption at the first signal; further ones change nothing, and after the block none does: whoever was
    interrupted is about to leave, and a second Ctrl-C in its last moments must not change its exit code."""
    hits = 0

    def hit(number: int, frame: object) -> None:
        nonlocal hits
        hits += 1
        if hits == 1:
            raise Interruption(number)
        if hits >= PATIENCE:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    before = {number: signal.signal(number, hit) for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if hits else handler)
