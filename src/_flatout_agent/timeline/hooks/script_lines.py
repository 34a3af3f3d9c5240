"""Which of the script's own lines take the time between the known parts of its loop.

Only where such time was seen to matter: then a thread looks now and then where the training thread is, more often while it
stays outside the known parts. Where it no longer matters, and before every fork, the thread is gone again: a plain loop never
has it.
"""

from __future__ import annotations

import _thread
import os
import sys
import sysconfig
from time import perf_counter_ns
from typing import Any

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.timeline.event_buffer import Tape
from _flatout_agent.timeline.phase_totals import SCRIPT
from _flatout_agent.timeline.script_loaders import is_of_the_script, is_ours

SHARE = 0.03  # of the time since the last reading: less is not worth a thread
SELDOM, OFTEN = 0.1, 0.02  # seconds between two looks: in a loop that goes on, and while nothing is heard of it
READINGS = 5  # without such time, and the thread ends
MOST_LINES, TOLD = 256, 5


class OwnLines:
    """Told of every reading of the tape."""

    def __init__(self, torch: Any, tape: Tape) -> None:
        clock = tape.clock
        self._tape = tape
        # What came last says where the thread is: after these it is in none of the known parts, if a loader gives the batches.
        self._outside = {clock.step_ended, clock.exhausted, clock.loader_started, clock.evaluation_ended}
        self._inside = {clock.copied, clock.waited, clock.compiled, clock.saved, clock.worked, clock.let_go}
        self._packages = (os.path.dirname(os.path.abspath(torch.__file__)) + os.sep, sysconfig.get_paths()["stdlib"] + os.sep)
        self.spent: dict[str, int] = {}  # file and line -> nanoseconds
        self._since = self._before = self._quiet = 0
        self._over: Any = None  # a lock that is held while the thread is to go on
        self._gone: Any = None  # and one that is held until it is gone
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self.end)

    def after_reading(self, now: int) -> None:
        spent = self._tape.clock.totals[SCRIPT]
        matters = spent - self._before >= SHARE * (now - self._since) and bool(self._tape.iterator)
        first, self._since, self._before = not self._since, now, spent
        self._quiet = 0 if matters else self._quiet + 1
        if matters and self._over is None and not first:
            self._begin()
        elif self._over is not None and self._quiet >= READINGS:
            self.end()

    def told(self) -> dict[str, Any]:
        if not self.spent:
            return {}
        lines = sorted(dict(self.spent).items(), key=lambda item: -item[1])[:TOLD]
        return {"own_lines": [list(line) for line in lines], "own_lines_seen": sum(list(self.spent.values()))}

    def end(self) -> None:
        """Does not come back before the thread is gone."""
        try:
            over, self._over = self._over, None
            if over is not None:
                over.release()
                if self._gone.acquire(timeout=1):
                    self._gone.release()
        except Exception as error:  # Python would print it at a fork
            fault("own_lines.end", error)

    def _begin(self) -> None:
        over, gone = _thread.allocate_lock(), _thread.allocate_lock()
        over.acquire()
        gone.acquire()
        _thread.start_new_thread(self._look_on, (over, gone))
        self._over, self._gone = over, gone

    def _look_on(self, over: Any, gone: Any) -> None:
        try:
            wait, last, heard = SELDOM, perf_counter_ns(), None
            while not over.acquire(timeout=wait):
                now, newest = perf_counter_ns(), self._newest()
                if newest is not None and newest[0] in self._outside and not self._tape.glancing:
                    self._add(now - last)
                wait = OFTEN if newest is heard else SELDOM
                last, heard = now, newest
        except Exception as error:
            fault("own_lines", error)
        finally:
            gone.release()

    def _newest(self) -> Any:
        """The last boundary on the tape; copies and waits lie inside a part and bound none."""
        return next((line for line in self._tape.lines[:-9:-1] if line[0] not in self._inside), None)

    def _add(self, nanoseconds: int) -> None:
        site = self._site(sys._current_frames().get(self._tape.owner or 0))
        if site and (site in self.spent or len(self.spent) < MOST_LINES):
            self.spent[site] = self.spent.get(site, 0) + nanoseconds

    def _site(self, frame: Any) -> str:
        """The innermost line of the script; none inside a call of ours, where it waits for data or saves."""
        site = ""
        while frame is not None:
            name = frame.f_code.co_filename
            if is_ours(name):
                return ""
            if not site and not name.startswith(self._packages) and is_of_the_script(name):
                site = f"{name}:{frame.f_lineno}"
            frame = frame.f_back
        return site
