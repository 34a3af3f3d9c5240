"""The profile that a search leaves: the values, what they gave, and what they were measured on."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flatout.base.records import Missing
from flatout.knobs import profile_file
from flatout.knobs.profile import Fingerprint, Profile, Provenance
from flatout.machine import nvml
from flatout.tune.model import Finished


def write_profile(end: Finished, ready: Mapping[str, Any], line: Sequence[str], now: float) -> Path:
    """Beside the script, where `flatout run` looks for it."""
    script = next((Path(word) for word in line[1:] if word.endswith(".py") and Path(word).is_file()), None)
    path = (script.parent if script else Path.cwd()) / profile_file.NAME
    profile_file.write(path, profile_of(end, ready, line, now, script))
    return path


def profile_of(end: Finished, ready: Mapping[str, Any], line: Sequence[str], now: float, script: Path | None) -> Profile:
    return Profile(
        knobs=dict(end.profile),
        arguments=dict(end.batch.arguments) if end.batch is not None and "batch_size" in end.profile else {},
        provenance=Provenance(
            command=list(line[1:]),
            date=time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now)),
            ratio=_rounded(end.speedup),
            low=_rounded(end.lower),
            high=_rounded(end.upper),
        ),
        fingerprint=_fingerprint(ready, script),
    )


def _fingerprint(ready: Mapping[str, Any], script: Path | None) -> Fingerprint:
    """Of the card only where one was used."""
    digest = digest_of(script)
    torch = str(ready.get("torch", ""))
    if ready.get("device") != "cuda":
        return Fingerprint(script=digest, torch=torch, card="CPU")
    driver = nvml.driver()
    gpus = driver.gpus if isinstance(driver.gpus, list) else []
    version = driver.version if isinstance(driver.version, str) else ""
    return Fingerprint(script=digest, torch=torch, driver=version, card=gpus[0].name if gpus else "")


def digest_of(script: Path | None) -> str:
    return hashlib.sha256(script.read_bytes()).hexdigest() if script else ""


def _rounded(value: float | Missing) -> float | None:
    return None if isinstance(value, Missing) else round(value, 4)
