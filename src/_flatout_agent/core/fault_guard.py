"""Fail open: a fault of ours is noted once and never reaches the user's training."""

from __future__ import annotations

import os
from typing import Callable

# Set by `start` to the journal's writer; until then faults have nowhere to go but the debug switch.
_report: Callable[[str, str], None] | None = None
_seen: set[str] = set()

MOST_FAULTS = 20


def report_to(report: Callable[[str, str], None]) -> None:
    global _report
    _report = report


def fault(where: str, error: BaseException) -> None:
    """Note a fault of ours: once per place, and never by raising."""
    try:
        if os.environ.get("FLATOUT_DEBUG"):
            import traceback  # only now: a script's own `token.py` comes before Python's, as without us

            traceback.print_exception(type(error), error, error.__traceback__)
        if where in _seen or len(_seen) >= MOST_FAULTS:
            return
        _seen.add(where)
        if _report is not None:
            _report(where, f"{type(error).__name__}: {error}"[:500])
    except Exception:
        pass
