"""Beside the running script: the cards before it started, a look at them about once a second, and the host's counters.

A thread of the front's own process: it costs the script nothing but the driver's answers, and a driver that hangs takes only
this thread with it.
"""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType

from flatout.base.records import Missing
from flatout.machine.model import Gpu
from flatout.machine.run_look import GpuDuring, HostStrain

EVERY_S = 1.0

# How long the end of a run waits for a look that is under way.
PATIENCE_S = 2.0


class Watcher:
    """A context manager: looks from its entry to its exit. What it could not learn stays empty; it never raises."""

    def __init__(self) -> None:
        self.before: list[Gpu] = []
        self.during: list[GpuDuring] = []
        self.host = HostStrain()
        self._ended = threading.Event()
        # A daemon: one that hangs in the driver must not keep the process alive.
        self._thread = threading.Thread(target=self._watch, name="flatout-watcher", daemon=True)

    def __enter__(self) -> Watcher:
        with contextlib.suppress(RuntimeError):  # no more threads to be had
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(PATIENCE_S)

    def _watch(self) -> None:
        with contextlib.suppress(Exception):
            self._look_on()

    def _look_on(self) -> None:
        # Imported here: the script was not to wait for them.
        from flatout.machine import host, nvml
        from flatout.machine.tally import Tally

        first, tally = host.strain(), Tally()
        cards = nvml.driver().gpus
        self.before = [] if isinstance(cards, Missing) else cards
        with nvml.looks() as look:
            # Without a card there is nothing to look at again: sleep until the end.
            while self.before and not self._ended.wait(EVERY_S):
                tally.add(look())
                self.during = tally.cards()
        self._ended.wait()
        self.host = host.strained(first, host.strain())
