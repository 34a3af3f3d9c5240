"""Exceptions with an exit code and the key of their message.

FlatoutError            1  something went wrong that is not the user's wording
├── UsageError          2  wrong arguments, a file that is not there, two settings that contradict each other
│   └── UnknownNameError   (also a LookupError) a key or name that does not exist; the nearest known one is said
└── RecordError         1  a record that cannot be read: damaged, of another kind, or from a newer flatout
"""

from __future__ import annotations

from typing import ClassVar

from flatout.base.words import Words, choose_language


class FlatoutError(Exception):
    """One sentence in the user's language; of the commands only `cli.main` prints it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, key: str, **params: object) -> None:
        super().__init__(key, params)
        self.key = key
        self.params = params

    def __str__(self) -> str:
        """The sentence: this is what a user of the library sees at the end of a traceback."""
        return Words(choose_language(None))(self.key, **self.params)


class UsageError(FlatoutError):
    exit_code = 2


class UnknownNameError(UsageError, LookupError):
    pass


class RecordError(FlatoutError):
    pass
