"""Runs a script with `--help` under the protection of trials, because a script without that option starts to train."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from _flatout_agent import wire
from flatout.base import records
from flatout.base.errors import FlatoutError
from flatout.launch import environment, own_argument
from flatout.launch.protection import Kind, Protection
from flatout.launch.trial_process import QUIET


def printed(line: Sequence[str], environ: Mapping[str, str], held: Protection) -> str:
    """Empty where it printed none, or could not be started so."""
    if held.kind == Kind.NONE:
        return own_argument.help_text(line, {**environ, "FLATOUT": "off"})
    command = held.wrap(line)
    place = held.above[0]  # which both sides see
    job = place / "help.json"
    records.write_bytes(job, wire.job_text(wire.new_job(str(place), time.time(), **held.job)))
    told = own_argument.help_text(command, {**environment.of_trial({**environ, **held.environ}, job, held=True), **QUIET})
    changed = held.changed()
    if changed:
        raise FlatoutError("tune-watched.help-changed", path=", ".join(map(str, changed)))
    return told
