"""A cache folder for compilers that trials and later runs share."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from flatout.knobs.catalogue import RECORDED

# Variable -> folder. A variable that the user has set counts more, where trials may write to that folder.
CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "CUDA_CACHE_PATH": "cuda"}

# What Inductor, Triton and CUDA call what they keep: by hashes, and by parts of theirs.
KEPT = re.compile(
    r"[a-z2-7]{2}|[a-z2-7]{52}|[A-Z2-7]{52}|[0-9a-f]{64}|[0-9a-f]|index|tmp\.\S+|\S+\.lock"
    r"|aotautograd|cache|dynamo|fxgraph|gcc|locks|precompiled_headers|tmp|torch_cutlass|triton|unhashed_kernel_inputs"
)

NOTHING_BUILT = (None, "off", "no", "script", RECORDED)


def user_cache(environ: Mapping[str, str]) -> Path | None:
    """None for a user without a home: one of a container's whose number has no name."""
    named = environ.get("XDG_CACHE_HOME", "")
    home = environ.get("HOME") or os.path.expanduser("~")
    if os.path.isabs(named):
        return Path(named)
    return Path(home) / ".cache" if os.path.isabs(home) else None


def caches(environ: Mapping[str, str], spared: Iterable[Path] | None = None) -> dict[str, str]:
    """Variable -> folder, made if it is not there. Without those that cannot be written.

    `spared`: folders of a command that must stay as they are. What trials may write to holds nothing but what was built.
    """
    cache = user_cache(environ)
    ours = {variable: cache / "flatout" / "compiled" / name for variable, name in CACHES.items()} if cache else {}
    refused = {} if spared is None else not_passed(environ, spared)
    named = {variable: Path(environ[variable]) for variable in CACHES if environ.get(variable) and variable not in refused}
    found = {}
    for variable, folder in {**ours, **named}.items():
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            found[variable] = str(folder.absolute())
    return found


def not_passed(environ: Mapping[str, str], spared: Iterable[Path]) -> dict[str, str]:
    """Variable -> folder of the user's that holds more than what was built, or may do so: trials get one of ours."""
    wide = [os.path.realpath(place) for place in [*_wide(environ), *map(str, spared)]]
    named = {variable: environ[variable] for variable in CACHES if environ.get(variable)}
    return {variable: folder for variable, folder in named.items() if not _holds_builds_alone(os.path.realpath(folder), wide)}


def _wide(environ: Mapping[str, str]) -> list[str]:
    named = [environ.get(name, "") for name in ("HOME", "TMPDIR", "TEMP", "TMP")]
    cache = user_cache(environ)
    return [os.getcwd(), os.path.expanduser("~"), tempfile.gettempdir(), *filter(None, named), *([str(cache)] if cache else [])]


def _holds_builds_alone(folder: str, wide: Iterable[str]) -> bool:
    if any(f"{place}{os.sep}".startswith(folder.rstrip(os.sep) + os.sep) for place in wide):
        return False  # it is one of them, or above it
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return all(KEPT.fullmatch(name) for name in names)


def caches_for(knobs: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Where a run finds what the trials built, if one of its knobs compiles; else its environment stays as it is."""
    return {} if knobs.get("compile") in NOTHING_BUILT else caches(environ)
