"""Errors that carry their exit code and the key of their sentence.

FlatoutError            1  something went wrong that is not the user's wording
├── UsageError          2  wrong arguments, a file that is not there, two settings that contradict each other
└── RecordError         1  a record that cannot be read: damaged, of another kind, or from a newer flatout
"""

from __future__ import annotations

from typing import ClassVar


class FlatoutError(Exception):
    """Only `cli.main` prints it, in the user's language, as one sentence."""

    exit_code: ClassVar[int] = 1

    def __init__(self, key: str, **params: object) -> None:
        super().__init__(key, params)
        self.key = key
        self.params = params

    def __str__(self) -> str:
        details = ", ".join(f"{name}={value!r}" for name, value in self.params.items())
        return f"{self.key}({details})"


class UsageError(FlatoutError):
    exit_code = 2


class RecordError(FlatoutError):
    pass
