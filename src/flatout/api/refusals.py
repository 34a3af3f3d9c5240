"""Exceptions of the library, one type per kind; each also derives from Python's own kind, such as TypeError.

UsageError
├── ArgumentTypeError   TypeError    an argument of the wrong type
├── ArgumentValueError  ValueError   the right type, but a value that cannot be meant
├── UnknownNameError    LookupError  a key or name that does not exist, wherever it is written; the nearest known one is said
└── NoParametersError   ValueError   a model without anything to train
FlatoutError
└── LossNotFiniteError  ArithmeticError
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flatout.base.errors import FlatoutError, UnknownNameError, UsageError

__all__ = [
    "ArgumentTypeError",
    "ArgumentValueError",
    "LossNotFiniteError",
    "NoParametersError",
    "UnknownNameError",
    "no_near_misses",
    "of_kind",
    "path_of",
    "share",
    "unknown_name",
    "whole_number",
]


class ArgumentTypeError(UsageError, TypeError):
    pass


class ArgumentValueError(UsageError, ValueError):
    pass


class NoParametersError(UsageError, ValueError):
    pass


class LossNotFiniteError(FlatoutError, ArithmeticError):
    pass


def whole_number(argument: str, value: Any, least: int = 0) -> int:
    """The value, or a sentence that names the argument. True and 3.0 are no whole numbers: both are slips."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ArgumentTypeError("error.argument-type", argument=argument, wanted="int", found=type(value).__name__)
    if value < least:
        raise ArgumentValueError("error.argument-least", argument=argument, value=value, least=least)
    return value


def path_of(argument: str, value: Any) -> Path:
    if not isinstance(value, str | os.PathLike):
        raise ArgumentTypeError("error.argument-type", argument=argument, wanted="str, Path", found=type(value).__name__)
    return Path(value)


def of_kind(argument: str, value: Any, kind: type, wanted: str) -> None:
    if not isinstance(value, kind):
        raise ArgumentTypeError("error.argument-type", argument=argument, wanted=wanted, found=type(value).__name__)


def share(argument: str, value: Any, most: float = 1.0) -> float:
    """A number above 0 and not above `most`."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ArgumentTypeError("error.argument-type", argument=argument, wanted="float", found=type(value).__name__)
    if not 0 < value <= most:
        raise ArgumentValueError("error.argument-share", argument=argument, value=value, most=f"{most:g}")
    return float(value)


def unknown_name(argument: str, name: str, known: Iterable[str]) -> UnknownNameError:
    choices = sorted(known)
    near = difflib.get_close_matches(name, choices, n=1)
    if near:
        return UnknownNameError("error.argument-unknown-near", argument=argument, name=name, near=near[0])
    return UnknownNameError("error.argument-unknown", argument=argument, name=name, known=", ".join(choices))


def no_near_misses(argument: str, names: Iterable[Any], known: Iterable[str]) -> None:
    """Refuses a key that is nearly one of ours; whatever else is in there belongs to somebody else."""
    choices = list(known)
    for name in names:
        if isinstance(name, str) and name not in choices and difflib.get_close_matches(name, choices, n=1, cutoff=0.85):
            raise unknown_name(argument, name, choices)
