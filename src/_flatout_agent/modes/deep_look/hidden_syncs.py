"""Which lines make the host wait for the device without saying so: torch warns of them for two steps.

The warnings never reach the script's terminal or its filters, and its own warnings go their way as before.
"""

from __future__ import annotations

import os
import re
import warnings
from typing import Any

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.patches import Patches
from _flatout_agent.timeline.script_loaders import calling_line

SYNC = "called a synchronizing"
OURS = re.compile(rf"{SYNC}|Synchronization debug mode is a prototype")
MOST_TOLD = 8


class SyncLook:
    name = "syncs"
    steps = 2
    restarts = True

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._folder = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
        self._patches = Patches()
        self._filter: tuple[Any, ...] | None = None
        self._found: dict[str, int] = {}

    def refusal(self) -> str | None:
        if not self._torch.cuda.is_initialized():
            return "no-device"
        if self._torch.cuda.get_sync_debug_mode():
            return "script-looks-itself"
        return None

    def begin(self) -> None:
        self._found.clear()
        self._listen()
        self._torch.cuda.set_sync_debug_mode("warn")

    def again(self) -> None:
        self._found.clear()

    def _listen(self) -> None:
        original: Any = getattr(warnings, "_showwarnmsg")  # noqa: B009  (not in the stubs: what C code calls for each warning)

        def show(message: Any) -> None:
            if OURS.match(str(message.message)):
                self._note(str(message.message))
            else:
                original(message)

        self._patches.put(warnings, "_showwarnmsg", show)
        # Into the list itself, past `filterwarnings`: that would make Python forget which warnings it has shown already.
        self._filter = ("always", OURS, UserWarning, None, 0)
        warnings.filters.insert(0, self._filter)  # type: ignore[attr-defined]

    def _note(self, text: str) -> None:
        try:
            if text.startswith(SYNC):
                site = calling_line(self._folder)
                self._found[site] = self._found.get(site, 0) + 1
        except Exception as error:
            fault("deep.syncs", error)

    def end(self, steps: int) -> dict[str, Any]:
        self.abandon()
        most = sorted(self._found.items(), key=lambda item: -item[1])[:MOST_TOLD]
        return {"sites": [{"site": site, "count": count / steps} for site, count in most]}

    def leave(self) -> None:
        pass

    def abandon(self) -> None:
        try:
            self._torch.cuda.set_sync_debug_mode("default")
        finally:
            self._patches.take_off()
            if self._filter is not None:
                # By identity: the script may have set its filters anew meanwhile.
                kept = [one for one in warnings.filters if one is not self._filter]
                warnings.filters[:] = kept  # type: ignore[index]
                self._filter = None
