"""Messages that the agent of a trial wrote for the front: words, each ended by a zero byte."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from _flatout_agent.wire import NO_NETWORK, NO_SOCKETS


def told(path: Path) -> list[str]:
    """Each word once, in their order; none where there is no such file."""
    try:
        written = path.read_bytes()
    except OSError:
        return []
    return list(dict.fromkeys(os.fsdecode(one) for one in written.split(b"\0") if one))


def network_limit(reached_for: Sequence[str], said: str) -> tuple[str, dict[str, str | int]] | None:
    """What ended a trial, if its last words are of a host or a socket that it was kept from."""
    if reached_for and NO_NETWORK in said:
        return "no-network", {"host": reached_for[-1]}
    if reached_for and NO_SOCKETS in said:
        return "no-socket", {"path": reached_for[-1]}
    return None
