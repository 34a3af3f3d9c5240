"""Which loaders a script made, where, and how long training waited for each."""

from __future__ import annotations

import os
import sys
from typing import Any

from _flatout_agent.core.own_folder import OWN_FOLDER

MOST_LOADERS = 16  # a script that makes one per epoch must not fill the journal
MOST_SITES = 4096

_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class LoaderUse:
    """One line of the script that makes a loader; loaders made there again are added up."""

    __slots__ = ("batches", "number", "settings", "site", "wait")

    def __init__(self, site: str, settings: dict[str, Any], number: int = 0) -> None:
        self.site = site
        self.number = number  # from one on, at most MOST_LOADERS
        self.settings = settings
        self.wait = 0
        self.batches = 0

    def told(self) -> dict[str, Any]:
        return {"site": self.site, **self.settings, "wait": self.wait, "batches": self.batches}


class Loaders:
    """Found again by identity: nothing is written onto the user's objects, which are pickled and copied."""

    def __init__(self) -> None:
        self.uses: dict[str, LoaderUse] = {}
        self._sites: dict[int, str] = {}  # id of a loader -> where it was made

    def made(self, loader: Any, site: str) -> None:
        if len(self._sites) < MOST_SITES:
            self._sites[id(loader)] = site

    def started(self, loader: Any) -> LoaderUse | None:
        """The account of a loader that begins an epoch; None where it is not known, or one too many."""
        site = self._sites.get(id(loader), "")
        use = self.uses.get(site)
        if use is None and loader is not None and len(self.uses) < MOST_LOADERS:
            use = self.uses[site] = LoaderUse(site, settings_of(loader), len(self.uses) + 1)
        return use

    def told(self) -> list[dict[str, Any]]:
        return [use.told() for use in self.uses.values() if use.batches]


def settings_of(loader: Any) -> dict[str, Any]:
    return {
        "workers": getattr(loader, "num_workers", None),
        "batch_size": getattr(loader, "batch_size", None),
        "pin_memory": bool(getattr(loader, "pin_memory", False)),
        "persistent_workers": bool(getattr(loader, "persistent_workers", False)),
        "prefetch_factor": getattr(loader, "prefetch_factor", None),
    }


def is_ours(name: str) -> bool:
    return name.startswith(OWN_FOLDER)


def is_of_the_script(name: str) -> bool:
    """Whether this file is the script's: neither a package's, nor ours, nor code without a file."""
    return not name.startswith((OWN_FOLDER, "<")) and not any(part in name for part in _PACKAGES)


def calling_line(torch_folder: str) -> str:
    """File and line of the script that called torch: the nearest frame that is not a package's, else the nearest at all."""
    frame: Any = sys._getframe(1)
    nearest = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((torch_folder, OWN_FOLDER, "<")):
            here = f"{name}:{frame.f_lineno}"
            if not any(part in name for part in _PACKAGES):
                return here
            nearest = nearest or here
        frame = frame.f_back
    return nearest
