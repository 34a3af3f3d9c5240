"""Paths of CUDA's libraries: which copies are loaded, and from where."""

from __future__ import annotations

import re

from flatout.doctor.paste.clean import Text
from flatout.doctor.paste.draft import Draft
from flatout.machine.machine_facts import Library

_PATH = re.compile(
    r"((?:/|[A-Za-z]:\\)[\w./\\+~ -]{0,180}?[\\/](?:lib)?(cudnn|cublas|cublasLt|cudart|nccl|nvrtc|cufft|cusparse|cusolver"
    r"|nvJitLink|cuda)"
    r"((?:[_-]\w{1,40})?(?:\.so(?:\.[\d.]+)?|64_\w{1,12}\.dll|\.dll)))(?![\w])"
)
# Lines that speak of libraries in use, not of files that merely lie on the disk as collect_env lists them.
_LOADED = re.compile(r"calling init|loaded|loading|=> ?/|r-xp|/proc/|linked|opened|=> /|using|from|picks? up|ldd", re.I)
_VERSION = re.compile(r"\.so\.(\d[\d.]*)|v?(\d+\.\d+\.\d+)")
_OUTSIDE = re.compile(r"^/(?:usr/)?lib|^/usr/local/cuda|^/opt/|^[A-Za-z]:\\Program Files\\NVIDIA|^[A-Za-z]:\\Windows", re.I)
MOST = 40


def read(text: Text, draft: Draft) -> None:
    for line in text.lines:
        if ".so" not in line and ".dll" not in line:
            continue
        if not _LOADED.search(line) or "no such file" in line.lower():
            continue
        for match in _PATH.finditer(line):
            found = draft.facts.cuda.loaded
            if isinstance(found, list) and len(found) >= MOST:
                return
            version = _VERSION.search(match[3])
            library = Library(name=match[2].lower().removesuffix("lt"), path=match[1])
            if version and (version[1] or version[2]):
                library.version = version[1] or version[2]
            draft.add("cuda.loaded", library)
    _shadowing(draft)


def _shadowing(draft: Draft) -> None:
    """A copy from outside beside the wheel's own of the same library."""
    loaded = draft.facts.cuda.loaded
    if not isinstance(loaded, list):
        return
    inside = {library.name for library in loaded if "site-packages" in str(library.path)}
    for library in loaded:
        path = str(library.path)
        if library.name in inside and "site-packages" not in path and _OUTSIDE.match(path):
            draft.add("cuda.shadowing", library)
