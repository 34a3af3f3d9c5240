"""Whether processes are still there."""

import time
from pathlib import Path


def gone(pid):
    """Or dead, and nobody has asked after it yet."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return True


def wait_until(what, seconds=20):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
