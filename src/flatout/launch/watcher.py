"""A thread beside the running script that samples GPUs and host counters about once a second.

A thread of the front's own process: it costs the script nothing but the driver's answers, and a driver that hangs takes only
this thread with it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType

from flatout.base.records import Missing
from flatout.machine.machine_facts import Gpu
from flatout.machine.run_look import GpuDuring, HostStrain

EVERY_S = 1.0

# How long the end of a run waits for a look that is under way.
PATIENCE_S = 2.0


class Watcher:
    """A context manager: looks from its entry to its exit. What it could not learn stays empty; it never raises.

    `told` is handed every look as it is made, in the watcher's own thread; `every_s` is the time between two of them.
    """

    def __init__(self, told: Callable[[list[Gpu]], None] | None = None, every_s: float | None = None) -> None:
        self.before: list[Gpu] = []
        self.missing: Missing | None = None  # why there is no card to look at
        self.during: list[GpuDuring] = []
        self.host = HostStrain()
        self.began = threading.Event()  # the cards before are known, or why not
        self._told = told
        self._every_s = EVERY_S if every_s is None else every_s
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
        self.began.set()

    def _look_on(self) -> None:
        # Imported here: the script was not to wait for them.
        from flatout.machine import host, nvml
        from flatout.machine.card_totals import Tally

        first, tally = host.strain(), Tally()
        cards = nvml.driver().gpus
        self.before, self.missing = ([], cards) if isinstance(cards, Missing) else (cards, None)
        self.began.set()
        with nvml.looks() as look:
            # Without a card there is nothing to look at again: sleep until the end.
            while self.before and not self._ended.wait(self._every_s):
                seen = look()
                tally.add(seen)
                self.during = tally.cards()
                if self._told is not None:
                    self._told(seen)
        self._ended.wait()
        self.host = host.strained(first, host.strain())
