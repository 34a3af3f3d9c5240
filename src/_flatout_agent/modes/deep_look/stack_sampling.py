"""Where a thread's time inside the dataset goes, by line: its stack is looked at every few milliseconds.

The thread that is looked at does nothing for it, and no trace function slows its lines down.
"""

from __future__ import annotations

import _thread
import os
import sys
from time import monotonic, sleep
from typing import Any

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.own_folder import OWN_FOLDER

# Uneven, so that a loop of the same length is not always met at the same line.
PAUSES = (0.0031, 0.0047, 0.0063)
ENOUGH = 600  # looks that found the thread inside the dataset
LONGEST = 20.0  # seconds; a worker that idles is not waited for
MOST_LINES = 5
# A thread that wants to look waits for its turn, by default 5 ms, and meanwhile the other may come to a line that lets it
# in at once (most of torch does): then that line would get all the blame.
TURN = 0.0001

_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep  # the line that calls the standard library counts
FETCH_FILE = os.path.join("torch", "utils", "data", "_utils", "fetch.py")


class Sampler:
    """Looks at one thread from another, which ends by itself."""

    def __init__(self, ident: int, torch_folder: str) -> None:
        self._ident = ident
        self._torch_folder = torch_folder
        self._stopped = False
        self._running = _thread.allocate_lock()
        self._found: dict[tuple[str, int, str], int] = {}
        self._own = 0
        self.paused = False
        self.looks = 0  # that found it inside the dataset
        self.after: Any = None  # called in the sampling thread when it ends by itself

    def start(self) -> None:
        """Not by `threading`: the script counts its threads, and may have asked to trace or profile all of them."""
        self._running.acquire()
        _thread.start_new_thread(self._run, ())

    @property
    def over(self) -> bool:
        return not self._running.locked()

    def stop(self) -> None:
        self._stopped = True
        if _thread.get_ident() != self._own and self._running.acquire(timeout=1.0):
            self._running.release()

    def _run(self) -> None:
        before = sys.getswitchinterval()
        self._own = _thread.get_ident()
        try:
            sys.setswitchinterval(TURN)
            until, turn = monotonic() + LONGEST, 0
            while self.looks < ENOUGH and monotonic() < until:
                turn = (turn + 1) % len(PAUSES)
                sleep(PAUSES[turn])
                if self._stopped:
                    return
                if not self.paused:
                    self._look(sys._current_frames().get(self._ident))
            if self.after is not None:
                self.after()
        except Exception as error:
            fault("deep.sampling", error)
        finally:
            if abs(sys.getswitchinterval() - TURN) < TURN / 2:  # else the script has set its own meanwhile
                sys.setswitchinterval(before)
            self._running.release()

    def _look(self, frame: Any) -> None:
        found = line_inside_dataset(frame, self._torch_folder)
        if found is not None:
            self.looks += 1
            self._found[found] = self._found.get(found, 0) + 1

    def told(self) -> dict[str, Any]:
        most = sorted(self._found.items(), key=lambda item: -item[1])[:MOST_LINES]
        lines = [
            {"site": f"{name}:{line}", "share": round(count / self.looks, 4), "function": function}
            for (name, line, function), count in most
        ]
        return {"lines": lines, "samples": self.looks}


def line_inside_dataset(frame: Any, torch_folder: str) -> tuple[str, int, str] | None:
    """File, line and function of the user's code nearest to what runs; None where the thread is not fetching a batch."""
    users: tuple[str, int, str] | None = None
    nearest: tuple[str, int, str] | None = None
    innermost: tuple[str, int, str] | None = None
    while frame is not None:
        code = frame.f_code
        name = code.co_filename
        if name.endswith(FETCH_FILE):
            return users or nearest or innermost or (name, frame.f_lineno, code.co_name)
        here = (name, frame.f_lineno, code.co_name)
        if innermost is None:
            innermost = here
        if not name.startswith((torch_folder, OWN_FOLDER, "<")):
            nearest = nearest or here
            if users is None and not any(part in name for part in _PACKAGES) and not name.startswith(_STANDARD):
                users = here
        frame = frame.f_back
    return None
