"""What the agent of a trial wrote down for the front: words, each with a zero byte after it."""

from __future__ import annotations

import os
from pathlib import Path


def told(path: Path) -> list[str]:
    """Each word once, in their order; none where there is no such file."""
    try:
        written = path.read_bytes()
    except OSError:
        return []
    return list(dict.fromkeys(os.fsdecode(one) for one in written.split(b"\0") if one))
