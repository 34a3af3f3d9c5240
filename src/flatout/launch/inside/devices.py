"""The devices and the shared memory of a trial."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Sequence

from flatout.launch.inside.kernel import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, mount

# What a training may use. Disks, memory, consoles and the rest are not there.
DEVICES = re.compile(r"null|zero|full|random|urandom|tty|nvidia.*|dri|kfd|dxg|accel.*|infiniband|hl\d.*|davinci.*")
OURS = "flatout-tmp-"
LEAST = 1 << 20  # bytes; 0 would be as many as one likes


class Devices:
    """A `/dev` with what a training uses; the shared memory is the command's own, as large as what is free outside."""

    def __init__(self, root: str, ways: Sequence[str], own_queues: bool, most: int) -> None:
        """`ways`: options to try an overlay with. `own_queues`: there is a namespace of messages and shared memory.
        `most`: bytes of shared memory."""
        self._root = root
        self._ways = ways
        self._own_queues = own_queues
        self.room = most  # bytes of shared memory that there are
        self.target = root + "/dev"

    def lay_out(self) -> None:
        os.makedirs(self.target, exist_ok=True)
        mount("flatout", self.target, "tmpfs", MS_NOSUID, "mode=0755,size=1m")
        self._nodes("/dev")
        os.mkdir(f"{self.target}/pts")
        mount("devpts", f"{self.target}/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
        os.symlink("pts/ptmx", f"{self.target}/ptmx")
        os.mkdir(f"{self.target}/shm")
        if self._own_queues:
            os.mkdir(f"{self.target}/mqueue")
            with contextlib.suppress(OSError):
                mount("mqueue", f"{self.target}/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        self._shared_memory()

    def _nodes(self, folder: str) -> None:
        for entry in os.scandir(folder):
            target = self._root + entry.path
            if folder == "/dev" and not DEVICES.fullmatch(entry.name) and not entry.is_symlink():
                continue
            with contextlib.suppress(OSError):
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), target)
                elif entry.is_dir():
                    os.mkdir(target)
                    self._nodes(entry.path)
                elif stat.S_ISCHR(entry.stat().st_mode):
                    os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
                    mount(entry.path, target, "", MS_BIND)

    def _shared_memory(self) -> None:
        """Its upper layer is memory, too: what workers hand over must not go to a disk."""
        outside, target = "/dev/shm", f"{self.target}/shm"
        if not os.path.isdir(outside):
            return
        told = os.statvfs(outside)
        self.room = max(min(told.f_bavail * told.f_frsize, self.room), LEAST)
        mount("flatout", target, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={self.room}")
        there = [entry for entry in os.scandir(outside) if not entry.name.startswith(OURS)]
        if there:
            self._with_what_is_there(outside, target)

    def _with_what_is_there(self, outside: str, target: str) -> None:
        for name in ("upper", "work"):
            os.mkdir(f"{target}/{name}")
        os.chmod(f"{target}/upper", 0o1777)
        os.chdir(target)
        descriptor = os.open(outside, os.O_PATH | os.O_DIRECTORY)
        options = f"lowerdir=/proc/self/fd/{descriptor},upperdir=upper,workdir=work"
        for more in self._ways:
            with contextlib.suppress(OSError):
                mount("overlay", target, "overlay", MS_NOSUID | MS_NODEV, f"{options}{more}")
                break
        os.close(descriptor)
