"""Recognises from a trial's last output that it failed because of the overlay, and finds what fills the disk."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from flatout.launch.inside.kernel import within
from flatout.launch.inside.start import FAILED_WORDS

# What the system says -> `tune-nothing.overlay-<code>`.
LIMITS = {
    r"Errno 18\]|Invalid cross-device link": "rename",  # of a folder that was there before
    r"Errno 30\]|Read-only file system": "read-only",  # no overlay could be laid over it
    r"Errno 75\]|Value too large for defined data type": "owner",  # a file of another user's
    r"(Errno 28\]|No space left on device).*/dev/shm|insufficient shared memory|[Bb]us error": "shared-memory",
    r"Errno 28\]|No space left on device": "room",
    re.escape(FAILED_WORDS): "start",
}
LAST_LINES = 3
NO_SUCH_GROUP = re.compile(r"Errno 22\]|Invalid argument")  # a namespace knows the user's own number and group alone
GIVES = re.compile(r"\b(l|f)?ch(own|grp)\b")
MOST_SHOWN = 5  # lines: with where it was in the script
NOT_THERE = re.compile(r"No such file|Errno 2\]|Permission denied|Errno 13\]|does not exist|not found|os error (2|13)\b")
NAMED = re.compile(r"""(?<=')[^']+|(?<=")[^"]+|[^\s'":<>|]*/[^\s'":<>|]+""")  # what may be a path
GIB = 1 << 30

Limit = tuple[str, dict[str, str | int]]


def met(said: str, scratch: Path | None = None) -> Limit | None:
    """Code and details of what ended the trial. `scratch`: where the report of how it was laid out lies."""
    shown = [line for line in said.strip().splitlines() if line.strip()][-MOST_SHOWN:]
    report = _report(scratch)
    for line in reversed(shown[-LAST_LINES:]):
        for pattern, code in LIMITS.items():
            if re.search(pattern, line):
                named = re.search(r"['\"](/[^'\"]*|[^'\"/ ][^'\"]*)['\"]", line)
                room = f"{report.get('shared_memory', 0) / GIB:.1f}"
                return f"overlay-{code}", {"path": named[1] if named else "?", "said": line.strip(), "room": room}
        if NO_SUCH_GROUP.search(line) and any(GIVES.search(one) for one in shown):
            return "overlay-group", {"said": line.strip()}
        hidden = _hidden(line, report)
        if hidden is not None:
            return "overlay-hidden", {"path": hidden, "said": line.strip()}
    return None


def _hidden(line: str, report: dict[str, Any]) -> str | None:
    """The place that could not be shown to the trial, or to be read only, in which it looked for something."""
    if not NOT_THERE.search(line):
        return None
    for word in NAMED.findall(line):
        path = os.path.realpath(word.rstrip(".,"))
        there = path if os.path.exists(path) else os.path.dirname(path)
        empty = [place for place in report.get("missing", ()) if within(path, place) and os.path.exists(there)]
        kept = [place for place in report.get("read_only", ()) if within(path, place) and os.access(there, os.W_OK)]
        if empty or (kept and "denied" in line):  # outside it would have worked
            return str([*empty, *kept][0])
    return None


def _report(scratch: Path | None) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((scratch / "report.json").read_bytes()) if scratch is not None else {}
    except (OSError, ValueError):
        return {}
    return found


def largest(scratch: Path) -> Path | None:
    """The file that takes the most room in the layers, by the name that the trial knows it by."""
    layers: dict[str, str] = _report(scratch)["layers"]
    found, most = None, 0
    for layer, covered in layers.items():
        upper = os.path.join(layer, "upper")
        for folder, _, files in os.walk(upper):
            for name in files:
                path = os.path.join(folder, name)
                taken = os.lstat(path).st_blocks
                if taken > most:
                    found, most = Path(covered) / os.path.relpath(path, upper), taken
    return found
