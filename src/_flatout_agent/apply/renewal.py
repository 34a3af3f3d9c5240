"""Why workers are started anew at the turn of an epoch."""

from __future__ import annotations

from typing import NamedTuple


class Renewal(NamedTuple):
    code: str  # `renewal.<code>` says it to people
    what: str = ""


def raised(error: Exception) -> Renewal:
    return Renewal("failed", f"{type(error).__name__}: {error}"[:200])
