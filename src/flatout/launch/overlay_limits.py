"""What an overlay cannot do, as a trial's last words tell of it; and what takes its room."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from flatout.launch.inside.start import FAILED_WORDS

# What the system says -> `tune-nothing.overlay-<code>`.
LIMITS = {
    r"Errno 18\]|Invalid cross-device link": "rename",  # of a folder that was there before
    r"Errno 30\]|Read-only file system": "read-only",  # no overlay could be laid over it
    r"Errno 75\]|Value too large for defined data type": "owner",  # a file of another user's
    r"Errno 28\]|No space left on device": "room",
    re.escape(FAILED_WORDS): "start",
}
LAST_LINES = 3


def met(said: str) -> tuple[str, dict[str, str | int]] | None:
    """Code and details of what ended the trial."""
    lines = [line for line in said.strip().splitlines() if line.strip()][-LAST_LINES:]
    for line in reversed(lines):
        for pattern, code in LIMITS.items():
            if re.search(pattern, line):
                named = re.search(r"['\"](/[^'\"]*|[^'\"/ ][^'\"]*)['\"]", line)
                return f"overlay-{code}", {"path": named[1] if named else "?", "said": line.strip()}
    return None


def largest(scratch: Path) -> Path | None:
    """The file that takes the most room in the layers, by the name that the trial knows it by."""
    layers: dict[str, str] = json.loads((scratch / "report.json").read_bytes())["layers"]
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
