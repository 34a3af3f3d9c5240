"""CUDA beside the driver: toolkits, the compiler, and libraries on the search path that come before torch's own."""

from __future__ import annotations

import json
import re
from pathlib import Path

from flatout.base.records import Missing
from flatout.machine.machine_facts import Cuda, Library
from flatout.machine.probe_host import World

NVCC_LIMIT_S = 3.0
# What torch's wheels bring along: another copy found first is the one that is loaded.
BUNDLED = ("cudnn", "cublas", "cublaslt", "cudart", "nvrtc", "nccl", "cusparse", "cusolver", "cufft", "nvjitlink")
FILE_LINUX = re.compile(r"lib(?P<name>[A-Za-z]+)\.so(?:\.(?P<version>\d[\d.]*))?")
FILE_WINDOWS = re.compile(r"(?P<name>[A-Za-z]+?)(?:64)?_(?P<version>\d[\d_]*)\.dll", re.I)


def cuda(world: World) -> Cuda:
    return Cuda(toolkits=toolkits(world), nvcc=nvcc(world), shadowing=shadowing(world))


def toolkits(world: World) -> list[str]:
    """Versions, each once. On Windows the installer leaves a variable per version."""
    found: set[str] = set()
    if world.platform == "Windows":
        found = {".".join(match.groups()) for name in world.environ if (match := re.fullmatch(r"CUDA_PATH_V(\d+)_(\d+)", name))}
    for entry in world.entries("/usr/local"):
        if re.fullmatch(r"cuda(-[\d.]+)?", entry.name) and (version := _version_of(world, f"/usr/local/{entry.name}")):
            found.add(version)
    return sorted(found, key=lambda version: tuple(int(part) for part in version.split(".")))


def _version_of(world: World, folder: str) -> str | None:
    try:
        version = json.loads(world.words(f"{folder}/version.json"))["cuda"]["version"]
    except (ValueError, KeyError, TypeError):
        version = world.words(f"{folder}/version.txt") or folder
    match = re.search(r"(\d+\.\d+)", str(version))
    # Only the compiler or the libraries make a toolkit: an empty folder, or the driver's compatibility files, do not.
    whole = any(world.path(f"{folder}/{part}").exists() for part in ("bin/nvcc", "lib64/libcudart.so", "version.json"))
    return match[1] if match and whole else None


def nvcc(world: World) -> str | Missing:
    home = world.environ.get("CUDA_HOME") or world.environ.get("CUDA_PATH")
    places = ["nvcc", *([str(Path(home) / "bin" / "nvcc")] if home else []), "/usr/local/cuda/bin/nvcc"]
    for place in places:
        output = world.run([place, "--version"], NVCC_LIMIT_S)
        if output.timed_out:
            return Missing("probe-timeout", "nvcc")
        if output.code is None:
            continue
        match = re.search(r"release (\d+\.\d+)", output.stdout)
        return match[1] if match else Missing("unreadable", "nvcc --version")
    return Missing("not-found", "nvcc")


def shadowing(world: World) -> list[Library]:
    windows = world.platform == "Windows"
    search = world.environ.get("PATH" if windows else "LD_LIBRARY_PATH", "")
    found: dict[str, Library] = {}
    for folder in search.split(";" if windows else ":"):
        for library in _libraries(world, folder, windows) if folder else []:
            found.setdefault(f"{library.name} {folder}", library)
    return list(found.values())


def _libraries(world: World, folder: str, windows: bool) -> list[Library]:
    found: list[Library] = []
    for entry in world.entries(folder):
        match = (FILE_WINDOWS if windows else FILE_LINUX).fullmatch(entry.name)
        if not match:
            continue
        name = match["name"].lower()
        if name in BUNDLED:
            version = _of_file(entry, windows) or (match["version"] or "").replace("_", ".")
            found.append(
                Library(name=name, path=f"{folder.rstrip('/')}/{entry.name}", version=version or Missing("not-reported"))
            )
        elif name == "cuda" and re.search(r"/(stubs|compat)/?$", folder):
            # The driver's own library belongs on the path; a stub of it or another driver's does not.
            found.append(Library(name=name, path=f"{folder.rstrip('/')}/{entry.name}"))
    return found


def _of_file(entry: Path, windows: bool) -> str | None:
    """The full version is in the name of the file that the short name points to."""
    if windows:
        return None
    match = FILE_LINUX.fullmatch(entry.resolve().name)
    return match["version"] if match else None
