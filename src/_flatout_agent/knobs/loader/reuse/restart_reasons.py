"""Why workers are started anew at the turn of an epoch."""

from __future__ import annotations

from typing import NamedTuple

CANNOT_BE_TOLD = "cannot-be-told"  # of an open file, say, nobody knows whether it is as it was


class Renewal(NamedTuple):
    code: str  # `renewal.<code>` says it to people
    what: str = ""


def raised(error: Exception) -> Renewal:
    return Renewal("failed", f"{type(error).__name__}: {error}"[:200])
