"""The profile that a search leaves: the values, what they gave, and what they were measured on."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flatout.base.records import Missing, dump
from flatout.base.secrets import hide
from flatout.knobs import profile_file
from flatout.knobs.profile import Fingerprint, Profile, Provenance
from flatout.launch import target
from flatout.machine import nvml
from flatout.tune.model import Finished


def write_profile(end: Finished, ready: Mapping[str, Any], line: Sequence[str], now: float) -> Path:
    """Beside the script, where `flatout run` looks for it."""
    path = target.home(line[1:]) / profile_file.NAME
    profile_file.write(path, profile_of(end, ready, line, now, target.script_file(line[1:])))
    return path


def profile_of(end: Finished, ready: Mapping[str, Any], line: Sequence[str], now: float, script: Path | None) -> Profile:
    return Profile(
        knobs=dict(end.profile),
        arguments=dict(end.batch.arguments) if end.batch is not None and "batch_size" in end.profile else {},
        provenance=Provenance(
            command=hide(line[1:]),
            date=time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now)),
            ratio=_rounded(end.speedup),
            low=_rounded(end.lower),
            high=_rounded(end.upper),
        ),
        fingerprint=_fingerprint(ready, script, any_batch="batch_size" in end.profile),
    )


def answer(end: Finished) -> dict[str, Any]:
    """The record as a program reads it: the names that the documentation promises, then everything else."""
    told: dict[str, Any] = dump(end)
    ceilings = told["ceilings"]
    return {
        "speedup": told["speedup"],
        "interval": [told["lower"], told["upper"]],
        "baseline": told["baseline"],
        "final": told["final"],
        "floor": ceilings["with_copy"],
        "input_ceiling": ceilings["supply"],
        "profile": told["profile"],
        "trials": told["decisions"],
        **told,
    }


def _fingerprint(ready: Mapping[str, Any], script: Path | None, any_batch: bool = False) -> Fingerprint:
    """Of the card only where one was used. `any_batch`: the profile sets the batch, and the shapes were seen before that."""
    digest = digest_of(script)
    torch = str(ready.get("torch", ""))
    shapes = [str(shape) for shape in ready.get("shapes") or []]
    if any_batch:
        shapes = ["x".join(["?", *shape.split("x")[1:]]) for shape in shapes]
    if ready.get("device") != "cuda":
        return Fingerprint(script=digest, torch=torch, card="CPU", shapes=shapes)
    driver = nvml.driver()
    gpus = driver.gpus if isinstance(driver.gpus, list) else []
    version = driver.version if isinstance(driver.version, str) else ""
    return Fingerprint(script=digest, torch=torch, driver=version, card=gpus[0].name if gpus else "", shapes=shapes)


def digest_of(script: Path | None) -> str:
    return hashlib.sha256(script.read_bytes()).hexdigest() if script else ""


def _rounded(value: float | Missing) -> float | None:
    return None if isinstance(value, Missing) else round(value, 4)
