"""The library's notes and warnings: sent to logging (`flatout`) and kept in a list."""

from __future__ import annotations

import logging

from flatout.base.words import Words, choose_language

LOG = logging.getLogger("flatout")


def sentence(key: str, **params: object) -> str:
    return Words(choose_language(None))(key, **params)


class Notes:
    """Each once, in the order in which they were said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._once: set[str] = set()
        self.is_quiet = False  # of several ranks the first speaks

    def warn(self, key: str, **params: object) -> None:
        self._say(logging.WARNING, sentence(key, **params))

    def warn_that(self, text: str) -> None:
        """A sentence that was made elsewhere."""
        self._say(logging.WARNING, text)

    def warn_once(self, key: str, **params: object) -> None:
        """Whatever its figures are the next time."""
        if key not in self._once:
            self._once.add(key)
            self.warn(key, **params)

    def tell(self, key: str, **params: object) -> None:
        self._say(logging.INFO, sentence(key, **params))

    def note(self, text: str) -> None:
        """A sentence that was made elsewhere."""
        self._say(logging.INFO, text)

    def _say(self, level: int, text: str) -> None:
        if text not in self.said:
            self.said.append(text)
            if not self.is_quiet:
                LOG.log(level, text)
