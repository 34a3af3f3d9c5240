"""The file system as a trial sees it: an overlay over everything that can be written."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from typing import Any

from flatout.launch.inside.devices import Devices
from flatout.launch.inside.kernel import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    is_below,
    make_read_only,
    mount,
    mounts,
    unmount,
    within,
)

NOT_COVERED = ("/proc", "/sys", "/dev")  # have ways of their own
MOST_ENTRIES = 5000  # of a folder that is laid out piece by piece
SMALL = 1 << 20  # bytes of a file that is copied where no overlay can be laid over its folder


class View:
    """The file system as the command will see it, laid out below `root`."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.root = os.path.join(plan["layers"], "root")
        self.mine = os.geteuid()
        self.mounts = [one for one in mounts() if not any(within(one.point, top) for top in plan["hidden"])]
        self.read_only: list[str] = []  # what no overlay could be laid over …
        self.missing: list[str] = []  # … and what could not be shown at all
        # Without user.* attributes an unprivileged overlay cannot replace a folder; with them it cannot rename one.
        ordinary = "user" in plan["namespaces"]
        self.ways = (",userxattr",) if ordinary else (",redirect_dir=on", "", ",userxattr")
        self.layers: dict[str, str] = {}  # folder of ours -> what it lies over
        self.shared_memory = 0  # bytes
        self._count = 0

    def lay_out(self) -> None:
        layers = self.plan["layers"]
        if self.plan["memory"]:
            mount("flatout", layers, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=0700,size={self.plan['memory']}")
        os.mkdir(self.root)
        if not self._overlay("/"):
            mount("flatout", self.root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=256m")
            self._piece_by_piece("/")
        else:
            self._cover_mounts_below("/")
        self._proc()
        self._read_only("/sys")
        devices = Devices(self.root, self.ways, "ipc" in self.plan["namespaces"], self.plan["shared_memory"])
        devices.lay_out()
        self.shared_memory = devices.room
        for folder, store in self.plan["kept"]:
            with contextlib.suppress(OSError):
                self._keep(folder, store)
        for folder in self.plan["shared"]:
            self.bind(folder, recursive=True)
        for folder in self.plan["services"]:
            with contextlib.suppress(OSError):
                self.bind(folder, recursive=True)
        self._nothing_at(layers)

    def report(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("read_only", "missing", "layers", "shared_memory")}

    # -- overlays ----------------------------------------------------------------------------------------------------

    def _cover(self, path: str) -> None:
        """The folder, writable, with what is mounted below it."""
        below = [one for one in self.mounts if is_below(one.point, path)]
        here = next((one for one in self.mounts if one.point == path), None)
        if here is not None and here.read_only and not below:
            self._read_only(path)
        elif self._overlay(path):
            self._cover_mounts_below(path)
        elif below and _few_entries(path):
            mount("flatout", self.root + path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=256m")
            self._piece_by_piece(path)
        else:
            self._read_only(path)

    def _cover_mounts_below(self, path: str) -> None:
        outermost: list[str] = []
        for one in self.mounts:
            if is_below(one.point, path) and not any(within(one.point, top) for top in (*outermost, *NOT_COVERED)):
                outermost.append(one.point)
        for point in outermost:
            with contextlib.suppress(OSError):  # not to be seen from here, for the command neither
                if stat.S_ISDIR(os.stat(point).st_mode):
                    self._cover(point)
                elif not stat.S_ISSOCK(os.stat(point).st_mode):
                    self._read_only(point)

    def _overlay(self, path: str, layer: str = "") -> bool:
        self._count += 1
        layer = layer or os.path.join(self.plan["layers"], str(self._count))
        self.layers[layer] = path
        upper, work = os.path.join(layer, "upper"), os.path.join(layer, "work")
        descriptor = -1
        try:
            os.makedirs(upper, exist_ok=True)
            os.makedirs(work, exist_ok=True)
            self._like(path, upper)
            self._prepare(path, upper)
            # By its descriptor: no name can have a comma or a colon that the options would take for theirs.
            descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY)
            os.chdir(layer)
            options = f"lowerdir=/proc/self/fd/{descriptor},upperdir=upper,workdir=work"
            return any(self._tried(path, f"{options}{more}") for more in self.ways)
        except OSError:
            return False
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _keep(self, folder: str, store: str) -> None:
        """What is written there lasts as long as the store does, not only as long as this command."""
        if os.path.isdir(folder):
            self._overlay(folder, store)
        else:
            os.makedirs(f"{store}/files", exist_ok=True)
            self.bind(folder, source=f"{store}/files")

    def _tried(self, path: str, options: str) -> bool:
        try:
            mount("overlay", self.root + path, "overlay", 0, options)
        except OSError:
            return False
        return True

    def _like(self, path: str, copy: str) -> None:
        seen = os.stat(path)
        if self.mine == 0:
            with contextlib.suppress(OSError):
                os.chown(copy, seen.st_uid, seen.st_gid)
        os.chmod(copy, stat.S_IMODE(seen.st_mode) if self.mine in (0, seen.st_uid) or os.access(path, os.W_OK) else 0o555)

    def _prepare(self, path: str, upper: str) -> None:
        """Folders of other owners on the way to what may be written: they cannot be copied up, so they are there before."""
        if self.mine == 0 and "user" not in self.plan["namespaces"]:
            return
        for entry in self.plan["entries"]:
            walked, copy = path, upper
            for name in entry[len(path.rstrip("/")) + 1 :].split("/") if is_below(entry, path) else ():
                walked, copy = os.path.join(walked, name), os.path.join(copy, name)
                if not os.path.isdir(walked) or os.stat(walked).st_uid == self.mine:
                    break
                if not os.path.isdir(copy):
                    os.mkdir(copy)
                    self._like(walked, copy)

    # -- where an overlay is refused ---------------------------------------------------------------------------------

    def _piece_by_piece(self, path: str) -> None:
        """A folder with mounts below that may not be uncovered: each thing in it by itself."""
        for entry in os.scandir(path):
            inner, target = entry.path, self.root + entry.path
            if inner in NOT_COVERED or os.path.lexists(target):
                continue
            with contextlib.suppress(OSError):
                if entry.is_symlink():
                    os.symlink(os.readlink(inner), target)
                elif entry.is_dir():
                    os.mkdir(target)
                    self._cover(inner)
                elif entry.is_file() and entry.stat().st_size <= SMALL and os.access(inner, os.W_OK):
                    shutil.copy2(inner, target)
                elif entry.is_file():
                    self._read_only(inner)
        self._like(path, self.root + path)

    def _read_only(self, path: str) -> None:
        try:
            self.bind(path, recursive=True)
            make_read_only(self.root + path)
        except OSError:
            with contextlib.suppress(OSError):
                unmount(self.root + path)
            self.missing.append(path)
            self._nothing_at(path)
        else:
            self.read_only.append(path)

    def bind(self, path: str, recursive: bool = False, source: str = "") -> None:
        target = self.root + path
        if not os.path.lexists(target):
            if os.path.isdir(source or path):
                os.makedirs(target)
            else:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
        mount(source or path, target, "", MS_BIND | (MS_REC if recursive else 0))

    def _nothing_at(self, path: str) -> None:
        if os.path.isdir(self.root + path):
            mount("flatout", self.root + path, "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "size=4k,mode=0555")

    # -- the kernel's own --------------------------------------------------------------------------------------------

    def _proc(self) -> None:
        target = self.root + "/proc"
        os.makedirs(target, exist_ok=True)
        if "pid" in self.plan["namespaces"]:
            mount("proc", target, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        else:
            mount("/proc", target, "", MS_BIND | MS_REC)
        if self.mine == 0:
            for name in ("sys", "sysrq-trigger", "irq", "bus"):
                with contextlib.suppress(OSError):
                    mount(f"{target}/{name}", f"{target}/{name}", "", MS_BIND)
                    make_read_only(f"{target}/{name}")


def _few_entries(path: str) -> bool:
    try:
        return len(os.listdir(path)) <= MOST_ENTRIES
    except OSError:
        return False
