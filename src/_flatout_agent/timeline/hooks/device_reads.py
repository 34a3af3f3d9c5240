"""Which lines of the script read a value back from the device, and wait for it; and how copies to it are made."""

from __future__ import annotations

import os
import sys
from typing import Any

from _flatout_agent.timeline.script_loaders import calling_line

MOST_SITES = 64
OURS = "_flatout_agent."
MOST_TOLD = 8
MOST_UNSTEPPED = 16  # batches without a step between them: after more it is an evaluation, and not training


class Site:
    """A line, and what it cost."""

    __slots__ = ("count", "place", "spent", "what")

    def __init__(self, what: str, place: str) -> None:
        self.what = what
        self.place = place
        self.spent = self.count = 0


class Reads:
    def __init__(self) -> None:
        self._folder = ""
        self._sites: dict[tuple[Any, int], Site] = {}
        self._copies = {"pinned": 0, "unpinned": 0, "blocking": 0, "bytes": 0}

    def of_torch(self, torch: Any) -> None:
        self._folder = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep

    def waited(self, what: str, nanoseconds: int, unstepped: int) -> None:
        """The line that called is looked up once. `unstepped` batches came since a step."""
        if unstepped > MOST_UNSTEPPED:
            return
        frame = sys._getframe(2)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(OURS):
            frame = frame.f_back  # a twin that was called by its class, a knob that stands between
        key = (frame.f_code, frame.f_lineno)
        site = self._sites.get(key)
        if site is None:
            if len(self._sites) >= MOST_SITES:
                return
            site = self._sites[key] = Site(what, calling_line(self._folder))
        site.spent += nanoseconds
        site.count += 1

    def copied(self, tensor: Any, non_blocking: bool) -> None:
        """On the steps that are looked at closely: asking whether memory is pinned is a call to the driver."""
        copies = self._copies
        pinned = tensor.is_pinned()
        copies["pinned" if pinned else "unpinned"] += 1
        copies["blocking"] += not (pinned and non_blocking)
        copies["bytes"] += tensor.numel() * tensor.element_size()

    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = {}
        if self._sites:
            by_site: dict[tuple[str, str], list[int]] = {}
            for site in self._sites.values():
                total = by_site.setdefault((site.what, site.place), [0, 0])
                total[0] += site.spent
                total[1] += site.count
            costliest = sorted(by_site.items(), key=lambda item: -item[1][0])[:MOST_TOLD]
            told["reads"] = [{"what": what, "site": site, "ns": t[0], "count": t[1]} for (what, site), t in costliest if t[1]]
        if self._copies["pinned"] + self._copies["unpinned"]:
            told["copies"] = dict(self._copies)
        return told
