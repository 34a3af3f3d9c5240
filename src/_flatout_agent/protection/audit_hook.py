"""What Python is asked to do, handed to whoever judges it: one audit hook for all guards."""

from __future__ import annotations

import threading
from typing import Any, Callable


class AuditHook:
    """`events`: the name of an audit event -> its judge, which raises what is to be refused."""

    def __init__(self) -> None:
        self.events: dict[str, Callable[..., None]] = {}
        self._now = threading.local()

    def heard(self, event: str, args: Any) -> None:
        judge = self.events.get(event)
        if judge is None or getattr(self._now, "judging", False):
            return
        self._now.judging = True  # what is done to judge is not judged
        try:
            judge(*args)
        finally:
            self._now.judging = False
