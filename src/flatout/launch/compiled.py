"""Where compilers keep what they built: a folder of ours that lives over trials and later runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from flatout.knobs.catalogue import RECORDED

# Variable -> folder. A variable that the user has set counts more.
CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "CUDA_CACHE_PATH": "cuda"}

NOTHING_BUILT = (None, "off", "no", "script", RECORDED)


def user_cache(environ: Mapping[str, str]) -> Path | None:
    """None for a user without a home: one of a container's whose number has no name."""
    named = environ.get("XDG_CACHE_HOME", "")
    home = environ.get("HOME") or os.path.expanduser("~")
    if os.path.isabs(named):
        return Path(named)
    return Path(home) / ".cache" if os.path.isabs(home) else None


def caches(environ: Mapping[str, str]) -> dict[str, str]:
    """Variable -> folder, made if it is not there. Without those that cannot be written."""
    cache = user_cache(environ)
    ours = {variable: cache / "flatout" / "compiled" / name for variable, name in CACHES.items()} if cache else {}
    wanted = {**ours, **{variable: Path(environ[variable]) for variable in CACHES if environ.get(variable)}}
    found = {}
    for variable, folder in wanted.items():
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            found[variable] = str(folder.absolute())
    return found


def caches_for(knobs: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Where a run finds what the trials built, if one of its knobs compiles; else its environment stays as it is."""
    return {} if knobs.get("compile") in NOTHING_BUILT else caches(environ)
