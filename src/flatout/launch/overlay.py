"""An overlay of everything that can be written: the strongest protection of trials.

Each trial gets a mount namespace of its own, in which an overlay lies over every folder (`inside.py`), and where they can be
had namespaces of processes, of the network and of shared memory. What it writes lands in layers of ours, and is thrown away
before the next one starts. Needs Linux, and either root or user namespaces.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from _flatout_agent.wire import HOSTS, REFUSED_HOSTS
from flatout.base.records import Missing, Struct
from flatout.launch import overlay_limits
from flatout.launch.compiled import caches, user_cache
from flatout.launch.inside.kernel import PIVOT_ROOT, mounts
from flatout.launch.inside.view import NOT_COVERED
from flatout.launch.reaper import remove
from flatout.launch.scratch import Scratch, scratch_places
from flatout.launch.trial_messages import network_limit, told
from flatout.machine import host

SOURCE = Path(__file__).resolve().parents[2]
START = "import sys; sys.path.insert(0, sys.argv[1]); from flatout.launch.inside.start import main; main(sys.argv[2:])"

NETWORK_NAMESPACE = "net"
NETWORK = "network"  # the folder in which the agent tells what was wanted of it

PROBE_S = 20.0
LEAST_DISK = 2 << 30  # a place with less is taken only where there is no better one
MEMORY_SHARE = 4  # of what is free: for shared memory, and for the layers where no disk takes them
RESERVE = 1 << 30  # bytes that stay free on the disk; half of what is free where that is less

# Nothing of a training lies there, and their mounts are many.
HIDDEN = (
    "/var/lib/docker", "/var/lib/containers", "/var/lib/containerd", "/var/lib/kubelet", "/run/containerd",
    "/run/docker", "/run/netns", "/run/snapd/ns",
)  # fmt: skip

# What libraries download lies there; it lasts one search.
DOWNLOADS = ("HF_HOME", "HF_DATASETS_CACHE", "HF_HUB_CACHE", "TRANSFORMERS_CACHE", "TORCH_HOME", "KERAS_HOME", "NLTK_DATA")

# Names of processes, of the network, of shared memory: those that cannot be had are left out, and are gaps.
LEFT_OUT: tuple[tuple[str, ...], ...] = ((), ("pid",), ("net",), ("pid", "net"), ("pid", "net", "ipc"))
GAPS = {"pid": "processes", "ipc": "messages", NETWORK_NAMESPACE: "network"}

NEVER_WALKED = frozenset(
    [*NOT_COVERED, "/usr", "/lib", "/lib64", "/bin", "/sbin", "/boot", "/etc", "/snap", "/lost+found", "/var/lib"]
)
DEEPEST, MOST_FOLDERS = 4, 3000

# Tries what trials do; prints the folders that took no file.
PROBE = """
import json, os, shutil, sys
planted, name, *folders = sys.argv[1:]
shutil.rmtree(planted)
os.mkdir(planted)
assert os.listdir(planted) == []
refused = []
for folder in folders:
    try:
        open(os.path.join(folder, name), "w").close()
    except OSError:
        refused.append(folder)
print(json.dumps(refused))
"""


class Place(Struct, frozen=True):
    """Where the layers lie; `memory`: bytes that they may take of it, 0 where it is a disk."""

    path: str
    memory: int


class Overlay:
    """A `Protection`. Where it cannot be had, `ready` is False."""

    kind = "overlay"
    shared_place: str | None = None
    watch = None

    def __init__(self, line: Sequence[str], folders: Sequence[Path], environ: Mapping[str, str], allow_network: bool) -> None:
        self._folders = [str(folder) for folder in folders]
        self._user_environ = environ
        self._allow_network = allow_network
        self._namespaces: list[str] = []
        self._memory = 0
        self._reserve = 0
        self._scratch: Scratch | None = None
        self._shared: list[str] = []
        self._addresses: list[str] = []  # that trials before the last one opened
        self._mps = multi_process_service(environ)
        self._entries: list[str] = []
        self.environ: dict[str, str] = {}
        self.job: dict[str, Any] = {}

    @property
    def ready(self) -> bool:
        return self._scratch is not None

    @property
    def above(self) -> list[Path]:
        return [self._scratch.path] if self._scratch is not None else []

    @property
    def gaps(self) -> tuple[str, ...]:
        missing = [code for name, code in GAPS.items() if name not in self._namespaces]
        if NETWORK_NAMESPACE not in self._namespaces:
            missing.append("abstract-sockets")
        if self._allow_network and "network" in missing:
            missing.remove("network")
        if "processes" in missing:
            missing.append("daemons")
        return (*missing, "shared-memory") if self._mps else tuple(missing)

    def __enter__(self) -> Overlay:
        if sys.platform == "linux" and os.uname().machine in PIVOT_ROOT:
            self._entries = sorted({*self._folders, *_known_places(self._user_environ), *_writable_places()})
            for place in places():
                if self._try(place):
                    break
        if self._scratch is not None:
            self.environ = caches(self._user_environ, map(Path, self._folders))
            network = str(self._scratch.path / NETWORK)
            apart = NETWORK_NAMESPACE in self._namespaces
            self.job = {"network_guard": {"folder": network, "network": self._allow_network, "apart": apart}}
            self._shared.append(network)
            self._shared += [folder for folder in self.environ.values() if folder not in self._shared]
        return self

    def __exit__(self, *_: object) -> None:
        self._forget()

    def share(self, folder: Path) -> None:
        self._shared.append(str(folder))

    def changed(self) -> list[Path]:
        return []

    def made(self) -> list[Path]:
        return []

    def refused(self) -> str | None:
        return None

    def limit_met(self, said: str) -> tuple[str, dict[str, str | int]] | None:
        scratch = self._scratch.path if self._scratch is not None else None
        return network_limit(self._told(REFUSED_HOSTS), said) or overlay_limits.met(said, scratch)

    def addresses(self) -> list[str]:
        return list(dict.fromkeys([*self._addresses, *self._told(HOSTS)]))

    def _told(self, name: str) -> list[str]:
        return told(self._scratch.path / NETWORK / name) if self._scratch is not None else []

    def overfull(self) -> Path | None:
        """Opening a large file for writing copies it whole."""
        if self._memory or self._scratch is None or _free(self._scratch.path) > self._reserve:
            return None
        return overlay_limits.largest(self._scratch.path)

    def wrap(self, command: Sequence[str]) -> list[str]:
        assert self._scratch is not None
        layers = self._scratch.path / "layers"
        remove(str(layers))
        layers.mkdir()
        self._reserve = min(RESERVE, _free(layers) // 2)
        self._addresses = self.addresses()
        remove(str(self._scratch.path / NETWORK))
        (self._scratch.path / NETWORK).mkdir()
        plan = self._scratch.path / "plan.json"
        plan.write_text(json.dumps(self._plan(layers)), encoding="ascii")
        return [sys.executable, "-I", "-S", "-c", START, str(SOURCE), str(plan), *command]

    def _plan(self, layers: Path) -> dict[str, Any]:
        assert self._scratch is not None
        kept = [[folder, str(self._scratch.path / "kept" / str(number))] for number, folder in enumerate(self._downloads())]
        return {
            "layers": str(layers),
            "memory": self._memory,
            "namespaces": self._namespaces,
            "entries": self._entries,
            "kept": kept,
            "shared": self._shared,
            "shared_memory": _memory_share() or sys.maxsize,
            "services": [*self._mps, "/dev/shm"] if self._mps else [],
            "hidden": HIDDEN,
            "parent": os.getpid(),
            "report": str(self._scratch.path / "report.json"),
        }

    def _downloads(self) -> list[str]:
        cache, named = user_cache(self._user_environ), [self._user_environ.get(name, "") for name in DOWNLOADS]
        return list(dict.fromkeys([*([str(cache)] if cache else ()), *(name for name in named if os.path.isabs(name))]))

    # -- whether it can be had -----------------------------------------------------------------------------------------

    def _try(self, place: Place) -> bool:
        try:
            self._scratch = Scratch(place.path)
        except OSError:
            return False
        self._memory = place.memory
        for namespaces in _ladder(self._allow_network, bool(self._mps)):
            self._namespaces = namespaces
            if self._holds():
                return True
        self._forget()
        return False

    def _holds(self) -> bool:
        """Proved by writing: nothing may come through, and the working folder takes files as it does outside."""
        assert self._scratch is not None
        planted, name = self._scratch.path / "planted", f".flatout-probe-{secrets.token_hex(4)}"
        planted.mkdir(exist_ok=True)
        (planted / "kept").touch()
        tried = [folder for folder in self._entries if os.access(folder, os.W_OK)]
        command = self.wrap([sys.executable, "-I", "-S", "-c", PROBE, str(planted), name, *tried])
        try:
            ended = subprocess.run(command, capture_output=True, check=False, timeout=PROBE_S)
        except (OSError, subprocess.TimeoutExpired):
            return False
        through = [folder for folder in tried if os.path.exists(os.path.join(folder, name))]
        for folder in through:
            os.unlink(os.path.join(folder, name))
        if ended.returncode or through or not (planted / "kept").exists():
            return False
        refused = json.loads(ended.stdout)
        return not any(folder in refused for folder in self._folders)

    def _forget(self) -> None:
        self._namespaces = []
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None


def _ladder(allow_network: bool, mps: bool) -> Iterator[list[str]]:
    """Namespaces to ask for, the most first."""
    wanted = ["mount", "pid", "ipc", "net"]
    if allow_network:
        wanted.remove("net")
    if mps:
        wanted.remove("ipc")
    seen = []
    for first in ([], ["user"]) if os.geteuid() == 0 else (["user"],):
        for left_out in LEFT_OUT:
            names = [*first, *(name for name in wanted if name not in left_out)]
            if names not in seen:
                seen.append(names)
                yield names


def places() -> list[Place]:
    """Where the layers may lie: on a disk with room, at last in memory."""
    kinds = {one.point: one.kind for one in mounts()}
    disks = []
    for path in scratch_places():
        with contextlib.suppress(OSError):
            if _kind_of(os.path.realpath(path), kinds) not in ("tmpfs", "ramfs", "overlay") and os.access(path, os.W_OK):
                told = os.statvfs(path)
                disks.append((told.f_bavail * told.f_frsize, path))
    roomy = [path for free, path in disks if free >= LEAST_DISK]
    rest = [path for free, path in sorted(disks, reverse=True) if path not in roomy]
    share = _memory_share()
    in_memory = [Place(path, share) for path in scratch_places()[:1] if share]
    return [*(Place(path, 0) for path in roomy), *in_memory, *(Place(path, 0) for path in rest)]


def _memory_share() -> int:
    """Bytes; 0 where it is not known how much is free."""
    available = host.memory().available_bytes
    return 0 if isinstance(available, Missing) else available // MEMORY_SHARE


def _free(path: Path) -> int:
    told = os.statvfs(path)
    return told.f_bavail * told.f_frsize


def _kind_of(path: str, kinds: Mapping[str, str]) -> str:
    while path not in kinds and path != "/":
        path = os.path.dirname(path)
    return kinds.get(path, "")


def multi_process_service(environ: Mapping[str, str]) -> list[str]:
    """The folder in which CUDA's multi-process service listens, where it does."""
    folder = environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps"
    return [folder] if os.path.exists(os.path.join(folder, "control")) else []


# -- what an ordinary user may write to ------------------------------------------------------------------------------


def _known_places(environ: Mapping[str, str]) -> list[str]:
    named = [os.getcwd(), environ.get("HOME", ""), environ.get("TMPDIR", ""), "/tmp", "/var/tmp", user_cache(environ) or ""]
    return [os.path.realpath(path) for path in named if os.path.isdir(path)]


def _writable_places() -> list[str]:
    """Folders that an ordinary user may write to, in folders of other owners: an overlay must know them beforehand."""
    me = os.geteuid()
    if me == 0:
        return []
    found, waiting = [], [("/", 0)]
    for count, (folder, depth) in enumerate(waiting):
        if count > MOST_FOLDERS:
            break
        for path in _folders_in(folder):
            if os.access(path, os.W_OK):
                found.append(path)
            elif depth < DEEPEST and path not in NEVER_WALKED:
                waiting.append((path, depth + 1))
    return found


def _folders_in(folder: str) -> Iterable[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
