"""Which system this is: distribution, WSL, container."""

from __future__ import annotations

import re

from flatout.base.records import Missing
from flatout.machine import host
from flatout.machine.machine_facts import System
from flatout.machine.probe_host import World
from flatout.machine.probes import kernel

COMMAND_LIMIT_S = 3.0
CONTROL_GROUPS = (
    ("kubepods", "kubernetes"),
    ("docker", "docker"),
    ("libpod", "podman"),
    ("lxc", "lxc"),
    ("containerd", "other"),
)


def system(world: World) -> System:
    own = host.system()
    linux = world.platform == "Linux"
    return System(
        name=world.platform,
        release=(kernel.release(world) if linux else "") or own.release,
        distribution=distribution(world),
        architecture=own.architecture,
        wsl=wsl(world) if linux else False,
        container=container(world) if linux else "none",
    )


def distribution(world: World) -> str | Missing:
    if world.platform == "Windows":
        return Missing("not-applicable")
    if world.platform == "Darwin":
        output = world.run(["sw_vers", "-productVersion"], COMMAND_LIMIT_S)
        return (
            f"macOS {output.stdout.strip()}" if output.code == 0 and output.stdout.strip() else Missing("not-found", "sw_vers")
        )
    for place in ("/etc/os-release", "/usr/lib/os-release"):
        match = re.search(r'^PRETTY_NAME="?([^"\n]+)', world.words(place), re.M)
        if match:
            return match[1]
    return Missing("not-found", "/etc/os-release")


def wsl(world: World) -> bool:
    """WSL2 runs Microsoft's kernel, also below a container; /dev/dxg is its road to the GPU."""
    return "microsoft" in kernel.release(world).lower() or world.path("/dev/dxg").exists()


def container(world: World) -> str:
    if "KUBERNETES_SERVICE_HOST" in world.environ or world.path("/var/run/secrets/kubernetes.io").exists():
        return "kubernetes"
    if world.path("/.dockerenv").exists():
        return "docker"
    if world.path("/run/.containerenv").exists():
        return "podman"
    return _by_marks(world)


def _by_marks(world: World) -> str:
    groups = world.words("/proc/1/cgroup")
    for mark, name in CONTROL_GROUPS:
        if re.search(rf"[/.-]{mark}", groups):
            return name
    # systemd writes what runs it here, and counts WSL among the containers; we do not.
    told = world.words("/run/systemd/container") or world.environ.get("container", "")
    if not told or told == "wsl":
        return "none"
    return told if told in ("docker", "podman", "lxc") else "other"
