"""A script that never comes to its first steps: why, as far as its end and its last words tell."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

from _flatout_agent import wire
from flatout.launch.protection import Protection
from flatout.launch.trial_process import TrialChild

OUT_OF_MEMORY = "out-of-memory"
NOTHING_FITS = "nothing-fits"


class NothingToTry(NamedTuple):
    """`tune-nothing.<code>` in the catalogue of words."""

    code: str
    details: dict[str, str | int] = {}  # noqa: RUF012 (never changed)


def reason(child: TrialChild, ended: str, ready: Mapping[str, Any], held: Protection) -> NothingToTry:
    """`held`: what the script was held by may be to blame."""
    if "refused" in ready:
        return NothingToTry(str(ready["refused"]), {"backwards": int(ready.get("backwards", 0))})
    code = child.process.returncode
    if ended == "hang" or code is None:
        return NothingToTry("waits")
    if code != 0 and (limit := held.limit_met(child.said())) is not None:
        return NothingToTry(*limit)
    words = last_words(child.said())
    if wire.NOT_STARTED in words:
        return NothingToTry("not-started", {"said": words})
    if code < 0:
        return NothingToTry("killed", {"signal": _name(-code), "said": words})
    if code > 0 and child.ran_out_of_memory():
        return NothingToTry(OUT_OF_MEMORY, {"said": words})
    if code > 0:
        if "No module named 'torch'" in words:
            return NothingToTry("torch-missing")
        # A trial has no terminal, and nobody at it.
        return NothingToTry("stdin" if words.startswith("EOFError") else "failed", {"status": code, "said": words})
    steps = child.steps()
    if steps:
        return NothingToTry("few-steps", {"steps": steps})
    return NothingToTry("no-torch" if steps is None else "no-steps")


def last_words(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else "…"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
