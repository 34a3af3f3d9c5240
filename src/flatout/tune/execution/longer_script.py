"""A script that ends after some steps is started again for every few trials. Its own argument for how many can make it last.

Only after it has come to its end once: what depends on the number (data made for so many steps) may take longer to start. The
learning rate's schedule stretches with it, which changes no speed; loss curves come from children that are as long as ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from flatout.base.records import Missing
from flatout.base.whole_number import whole_number
from flatout.launch.own_argument import LENGTH, Argument, Searched, find, put

FACTOR = 20
LONGEST = 10**8


class Lasting:
    def __init__(self, command: Sequence[str]) -> None:
        """`command` begins with the interpreter."""
        found = find(Searched(words=list(command[1:]), names=LENGTH))
        said = None if isinstance(found, Missing) else found.value
        self._own = whole_number(said) or 0  # 0 is often "no limit"
        self._argument: Argument | None = found if self._own and not isinstance(found, Missing) else None
        self._now = self._own

    @property
    def is_longer(self) -> bool:
        return self._now > self._own

    def came_to_its_end(self) -> None:
        self._now = min(LONGEST, self._now * FACTOR)

    def give_up(self) -> None:
        """It does not start so: as it is, from now on."""
        self._argument = None
        self._now = self._own = 0

    def command(self, line: Sequence[str]) -> list[str]:
        return put(line, self._argument, str(self._now)) if self._argument is not None and self.is_longer else list(line)
