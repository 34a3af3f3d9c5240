"""Job and journal as plain dicts: all that passes between the front and the agent.

The one agent file that the front imports too. A job is one JSON file named by the environment; a journal is one file of
JSON lines per process, appended to as training goes, so that a killed process leaves what it knew.
"""

from __future__ import annotations

import json
import os
from typing import Any

WIRE_VERSION = 2

JOB_VARIABLE = "FLATOUT_JOB"
SWITCH_VARIABLE = "FLATOUT"  # FLATOUT=off turns everything off
HELD_VARIABLE = "FLATOUT_HELD"  # set in trials that the agent itself must hold: without it no line of the script may run
HOLDING = ("write_guard", "network_guard", "veto")  # fields of a job that hold a trial

# What the time of a training process is divided into, in the order in which people read it.
PHASES = (
    "startup",  # process start to the first batch (or first step, where there is no loader)
    "settings",  # flatout's own work inside the process: putting settings on, looking at what they did, writing the journal
    "input",  # waiting for the data loader, its workers' start included
    "copy",  # host to device copies
    "forward",  # batch in hand to the start of the backward pass: the model and the loss
    "backward",  # inside the backward pass
    "optimizer",  # end of the backward pass to the end of the step: clipping, unscaling, the update
    "device_wait",  # the script blocked until the device had finished earlier work
    "compile",  # inside torch.compile's compiler
    "turn",  # from one epoch to the next: the loader's end, its new start, and the wait for the first batch
    "validation",  # batches that were not trained on, and what was done with them
    "checkpoint",  # inside torch.save
    "script",  # the script's own code between all these: logging, metrics, drawing, sleeping
    "shutdown",  # after the script's last line
    "unexplained",  # all the rest
)

# As journals of wire version 1 had them.
FIRST_PHASES = (
    "startup",
    "input",
    "copy",
    "forward",
    "backward",
    "optimizer",
    "device_wait",
    "compile",
    "validation",
    "checkpoint",
    "shutdown",
    "unexplained",
)

# What comes with every step. Of `script` only what lies within an epoch does: the clock's `script_outside` is the rest.
TRAINING_PHASES = ("input", "copy", "forward", "backward", "optimizer", "device_wait", "script")

# First steps pay for what happens once (allocation, kernel selection); rates leave them out.
WARM_STEPS = 3


GAVE_UP = 96  # exit status of a trial whose agent cannot go on: nobody would get an answer from it

NOT_STARTED = "flatout: the trial was not started:"  # what is said where its protection cannot be put on

READY = "ready.json"  # written by a trial's child once its parts are known
REFUSED = "refused.txt"  # what a trial was kept from changing, where no overlay holds it; each ends with a zero byte
REFUSED_HOSTS = "refused-hosts.txt"  # what it was kept from reaching
REFUSED_WORDS = "flatout: a trial must not change this"  # what such an error says …
NO_NETWORK = "flatout: a trial has no network"  # … and this one …
NO_SOCKETS = "flatout: a trial reaches no other programs"  # … and this one, whether it has a network or not
FILES_LOG = "log"  # what the processes of a trial tell each other of its files; each line ends with a zero byte …
FILE_MADE, FILE_GONE = "+", "-"  # … and begins with one of these
HOSTS = "hosts.txt"  # what it reached, where it may
LOSSES = "losses.json"  # written by a child that was to train for a loss curve
AUTO_OWNER = "auto-owner"  # made by the one process of a run that tunes itself
WENT_ON = "went-on.json"  # written by a trial's child before an epoch gets longer than the script expects
QUESTION = "segment.json"  # the segment that is asked for: a new one has another number


def answer_name(number: int) -> str:
    return f"result-{number}.json"


def journal_name(pid: int | str) -> str:
    return f"journal-{pid}.jsonl"


def read_job(environ: Any, held: bool = False) -> dict[str, Any] | None:
    """The job that the environment names, or None where there is none for this version. `held`: nothing turns it off."""
    path = environ.get(JOB_VARIABLE)
    if not path or (environ.get(SWITCH_VARIABLE, "").lower() == "off" and not held):
        return None
    with open(path, encoding="utf-8") as file:
        job: dict[str, Any] = json.load(file)
    return job if job.get("wire") == WIRE_VERSION else None


def new_job(run_dir: str, spawned: float, memory_fraction: float | None = None, **more: Any) -> dict[str, Any]:
    """`more`: `deep` for the deep look, `knobs` (name -> value) with `knobs_check` and `profile_made_for` (what a profile's
    batches were like), `write_guard` (`folder`, `free`: folders to write to, `network`: allowed, `starts_all`: other programs
    are held by the system itself, `began_ns`: what is older in shared memory is another's), `network_guard` (`folder`,
    `network`: that alone; `apart`: in a network of its own), `segments` for trials (`endless`: epochs do not end), `parity`,
    `auto`,
    `plain` (what a step and a turn of the plain script took when the profile was made), `put_off` (knob -> step after which
    it comes on),
    `until` (`cut_s`, `stop_s`) for a run that is measured and need not come to its end.
    """
    job = {"wire": WIRE_VERSION, "run_dir": run_dir, "spawned": spawned, "memory_fraction": memory_fraction}
    return {**job, **{name: value for name, value in more.items() if value}}


def job_text(job: dict[str, Any]) -> bytes:
    """As `read_job` reads it: in ASCII, so that a folder whose name is not in UTF-8 keeps every byte of it."""
    return json.dumps(job, indent=2).encode("ascii")


class Journal:
    """Appends one JSON line per call, straight to the file: what was written survives a SIGKILL."""

    def __init__(self, folder: str, pid: int) -> None:
        self._path = os.path.join(folder, journal_name(pid))
        self._descriptor: int | None = None
        self._identity = (0, 0)

    def write(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, **fields}, separators=(",", ":"), ensure_ascii=True)
        os.write(self._open(), line.encode("ascii") + b"\n")

    def _open(self) -> int:
        """Ours and nobody else's: a script that closes every descriptor may have a file of its own under our number."""
        if self._descriptor is not None:
            try:
                if _identity_of(self._descriptor) == self._identity:
                    return self._descriptor
            except OSError:
                pass
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._identity = _identity_of(self._descriptor)
        return self._descriptor


def _identity_of(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def parse_journal(text: str) -> list[dict[str, Any]]:
    """The lines of a journal; a last line cut short by a crash is left out."""
    lines = []
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            lines.append(entry)
    return lines
