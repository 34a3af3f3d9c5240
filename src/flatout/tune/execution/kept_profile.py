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
from flatout.knobs.profile import Fingerprint, Profile, Promise, Provenance
from flatout.launch import target
from flatout.machine import nvml
from flatout.measure.promise import UNIT_STEPS
from flatout.tune.search.questions_and_answers import Finished
from flatout.tune.search.run_length import batches_of_an_epoch


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
        promise=_promise(end, ready),
    )


def _promise(end: Finished, ready: Mapping[str, Any]) -> Promise:
    """What a run under the profile is compared with at its end."""
    whole = end.whole_run
    if whole is None or whole.code != "confirmed":
        return Promise()
    epochs = (whole.planned or {}).get("epochs") if whole.unit == "epoch" else None
    steps = (whole.planned or {}).get("steps") if whole.unit != "epoch" else None
    over = epochs if epochs is not None else float(steps) / UNIT_STEPS if steps is not None else 1.0
    return Promise(
        speedup=_rounded(whole.speedup),
        low=whole.interval[0] if whole.interval else None,
        high=whole.interval[1] if whole.interval else None,
        plain_s=_rounded(whole.plain_s),
        tuned_s=_rounded(whole.tuned_s),
        epochs=float(over),
        unit=whole.unit,
        batches=_batches(end, ready) if whole.unit == "epoch" else None,
        put_on_step=whole.put_on_step,
        plain_step_s=None if isinstance(whole.plain_step_s, Missing) else round(whole.plain_step_s, 7),
        put_off={name: off.step for name, off in whole.put_off.items()},
        put_off_saves_s=round(sum(off.saves_s for off in whole.put_off.values()), 7),
        plain={name: round(spent, 4) for name, spent in whole.parts["plain"].items()},
        tuned={name: round(spent, 4) for name, spent in whole.parts["tuned"].items()},
    )


def _batches(end: Finished, ready: Mapping[str, Any]) -> int | None:
    """Of an epoch under the profile."""
    own, size = batches_of_an_epoch(ready), end.profile.get("batch_size")
    if own is None or size is None or end.batch is None or not end.batch.own:
        return own
    return max(1, round(own * end.batch.own / int(size)))


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
