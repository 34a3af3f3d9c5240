"""The script's own source files: what it says of itself where the first steps cannot tell."""

from __future__ import annotations

import os
import re
import sys
from typing import Iterator

from _flatout_agent.core.own_folder import OWN_FOLDER

MOST_FILES = 200
MOST_BYTES = 1 << 20

_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

CREATE_GRAPH = re.compile(r"^[^#\n]*\bcreate_graph\s*=\s*True", re.MULTILINE)
RETAIN_GRAPH = re.compile(r"^[^#\n]*\bretain_graph\s*=\s*True", re.MULTILINE)
CHECKPOINTS = re.compile(
    r"^[^#\n]*(\btorch\.utils\.checkpoint\b|\bgrad(ient)?_checkpointing|utils import checkpoint\b)", re.MULTILINE
)
ALLOCATOR = re.compile(r"^[^#\n]*(\bPYTORCH_(CUDA_|HIP_)?ALLOC_CONF\b|AllocatorSettings|_allocator_settings\b)", re.MULTILINE)


def own_files() -> list[str]:
    """Of the script and of the modules of its own that it has imported; what is installed is not its own."""
    places = {os.path.dirname(os.path.abspath(os.__file__)) + os.sep}
    found = []
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not path.endswith(".py"):
            continue
        path = os.path.abspath(path)
        if path.startswith((OWN_FOLDER, *places)) or any(part in path for part in _PACKAGES):
            continue
        found.append(path)
    return found[:MOST_FILES]


def own_sources() -> Iterator[tuple[str, str]]:
    """(path, text) of each that can be read."""
    for path in own_files():
        try:
            if os.path.getsize(path) <= MOST_BYTES:
                with open(path, encoding="utf-8") as file:
                    yield path, file.read()
        except (OSError, ValueError):
            continue


def says_create_graph() -> str:
    """File and line at which the script asks for a gradient that can itself be differentiated; empty where nowhere."""
    return _said(CREATE_GRAPH)


def says_retain_graph() -> str:
    """File and line at which the script keeps a graph that it went backward through; empty where nowhere."""
    return _said(RETAIN_GRAPH)


def says_checkpointing() -> str:
    """File and line at which the script speaks of activation checkpointing; empty where nowhere."""
    return _said(CHECKPOINTS)


def says_allocator() -> str:
    """File and line at which the script speaks of the allocator's settings; empty where nowhere."""
    return _said(ALLOCATOR)


def _said(pattern: re.Pattern[str]) -> str:
    for path, text in own_sources():
        said = pattern.search(text)
        if said is not None:
            line = text.count("\n", 0, said.end()) + 1
            return f"{os.path.basename(path)}:{line}"
    return ""
